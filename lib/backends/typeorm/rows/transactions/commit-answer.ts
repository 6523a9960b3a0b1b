import type { QueryRunner } from 'typeorm';
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

/**
 * What is known about a transaction after its COMMIT has failed. `not committed`: the server says so, or COMMIT was not sent.
 * `committed`: a subscriber has failed after it. `unknown`: COMMIT has ended, one way or the other. `pending`: it may still take effect, nothing shows that it has ended.
 */
export type CommitOutcome = 'not committed' | 'committed' | 'unknown' | 'pending';

/** Follows the COMMIT of one transaction. */
export class CommitProgress {
  #answer: CommitAnswer | undefined;
  #wasSent = false;
  #isAnsweredLater = false;
  #isCommitted = false;

  /** Valid after a COMMIT that has failed. */
  get outcome(): CommitOutcome {
    if (this.#isCommitted) return 'committed';
    if (this.#answer === undefined || this.#answer === 'ended') return 'not committed';
    if (!this.#isAnsweredLater) return 'pending';
    return 'unknown';
  }

  onSent(): void {
    this.#wasSent = true;
  }

  onCommitted(): void {
    this.#isCommitted = true;
  }

  /** The database has executed a COMMIT. It counts if TypeORM has sent it, but not if the application has. */
  onExecuted(): void {
    if (this.#wasSent) this.#isCommitted = true;
  }

  /** Only the first error is that of COMMIT: those of subscribers follow it. */
  onFailed(cause: unknown): void {
    if (this.#wasSent) this.#answer ??= commitAnswerOf(cause);
  }

  /** The server executes the statements of a connection in their order, so a COMMIT before ROLLBACK has ended. */
  onRollbackAnswered(): void {
    if (this.#answer === 'none') this.#isAnsweredLater = true;
  }
}

/** Calls the listener right before each COMMIT of the query runner, after all subscribers. If it rejects, the commit does too. */
export function beforeEachCommit({ broadcaster }: QueryRunner, listener: () => Promise<void>): void {
  const broadcast = broadcaster.broadcast.bind(broadcaster);
  broadcaster.broadcast = async (event, ...rest) => {
    await broadcast(event, ...rest);
    // COMMIT follows, unless a subscriber has failed.
    if (event === 'BeforeTransactionCommit') await listener();
  };
}
