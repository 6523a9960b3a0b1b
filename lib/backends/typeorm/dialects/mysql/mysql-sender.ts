import type { SendStatement } from '../dialect.js';
import { driverErrorOf } from '../driver-error.js';

type Callback = (error: Error | null, outcome: unknown) => void;

/** What we use of a connection of `mysql2`; `mysql`, which TypeORM 0.3 takes too, cannot prepare. */
interface Mysql2Connection {
  query(sql: string, parameters: readonly unknown[], done: Callback): void;
  execute?(sql: string, parameters: readonly unknown[], done: Callback): void;
}

/** There are too many prepared statements, this one cannot be prepared here, or it is no longer known. */
const PREPARE_ERROR_CODES = ['1461', '1295', '1243', '1615'];

/** Has the server parse a text once for each connection, where it lets us. */
export function createMysqlSender(): SendStatement {
  const send = (
    driverConnection: Mysql2Connection,
    method: 'query' | 'execute',
    sql: string,
    parameters: readonly unknown[],
  ) =>
    new Promise((resolve, reject) => {
      driverConnection[method]?.(sql, parameters, (error, outcome) => {
        if (error) reject(error);
        else resolve(outcome);
      });
    });
  return async (driverConnection, sql, parameters) => {
    const client = driverConnection as Mysql2Connection;
    if (parameters.length === 0 || !client.execute) return send(client, 'query', sql, parameters);
    try {
      return await send(client, 'execute', sql, parameters);
    } catch (cause) {
      if (!PREPARE_ERROR_CODES.includes(driverErrorOf(cause).code)) throw cause;
      return await send(client, 'query', sql, parameters); // It was refused before it did anything.
    }
  };
}
