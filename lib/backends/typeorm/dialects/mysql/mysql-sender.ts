import type { SendStatement } from '../dialect.js';
import { driverErrorOf } from '../driver-error.js';

type Callback = (error: Error | null, outcome: unknown) => void;

/** The used part of a `mysql2` connection. `mysql`, which TypeORM 0.3 supports too, has no prepared statements. */
interface Mysql2Connection {
  query(sql: string, parameters: readonly unknown[], done: Callback): void;
  execute?(sql: string, parameters: readonly unknown[], done: Callback): void;
}

/** Too many prepared statements; a statement that cannot be prepared; a prepared statement that the server has dropped. */
const PREPARE_ERROR_CODES = ['1461', '1295', '1243', '1615'];

/** Prepares statements if possible, so that the server parses each text once for each connection. */
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
      // Sending it again is safe: these errors are raised before the statement takes effect.
      return await send(client, 'query', sql, parameters);
    }
  };
}
