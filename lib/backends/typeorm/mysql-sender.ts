import type { Send } from './dialect.js';
import { errorOf } from './error-of.js';

type Done = (error: Error | null, outcome: unknown) => void;

/** What we use of a connection of `mysql2`; `mysql`, which TypeORM 0.3 takes too, cannot prepare. */
interface Connection {
  query(sql: string, parameters: readonly unknown[], done: Done): void;
  execute?(sql: string, parameters: readonly unknown[], done: Done): void;
}

/** There are too many prepared statements, this one cannot be prepared here, or it is no longer known. */
const PREPARING_TROUBLE = ['1461', '1295', '1243', '1615'];

/** Has the server parse a text once for each connection, where it lets us. */
export function mysqlSender(): Send {
  const send = (
    connection: Connection,
    how: 'query' | 'execute',
    sql: string,
    parameters: readonly unknown[],
  ) =>
    new Promise((resolve, reject) => {
      connection[how]?.(sql, parameters, (error, outcome) => {
        if (error) reject(error);
        else resolve(outcome);
      });
    });
  return async (connection, sql, parameters) => {
    const client = connection as Connection;
    if (parameters.length === 0 || !client.execute) return send(client, 'query', sql, parameters);
    try {
      return await send(client, 'execute', sql, parameters);
    } catch (cause) {
      if (!PREPARING_TROUBLE.includes(errorOf(cause).code)) throw cause;
      return await send(client, 'query', sql, parameters); // It was refused before it did anything.
    }
  };
}
