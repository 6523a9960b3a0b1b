import { driverErrorOf } from '../../dialects/dialect.js';

/** The SQLSTATE of PostgreSQL, or the error number of MySQL and MariaDB. Errors of drivers and sockets have other codes. */
const SERVER_ERROR = /^([0-9A-Z]{5}|[1-9]\d{3})$/;

/**
 * Errors by which a server that ends, or a pooler that has lost its server, answers too. PostgreSQL: connection exception,
 * operator intervention, system error, internal error, completion unknown. MySQL: shutdown, connection killed, network,
 * the errors of clients, which proxies pass on, and those of ProxySQL itself.
 */
const CONNECTION_LOST = /^(08...|57P..|58...|XX...|40003|1053|1927|11[56]\d|2\d{3}|9\d{3})$/;

/**
 * `ended`: the server has answered that the transaction is not committed. `none`: the driver has no answer of the server, so
 * the answer to a later statement on the same connection shows that COMMIT has ended. `lost`: no answer can show that any more.
 */
export type CommitAnswer = 'ended' | 'none' | 'lost';

/** What the error of a COMMIT says about its transaction. */
export function commitAnswerOf(cause: unknown): CommitAnswer {
  const { code } = driverErrorOf(cause);
  if (!SERVER_ERROR.test(code)) return 'none';
  return CONNECTION_LOST.test(code) ? 'lost' : 'ended';
}
