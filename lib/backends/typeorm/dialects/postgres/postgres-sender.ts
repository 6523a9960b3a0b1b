import { createHash } from 'node:crypto';
import type { SendStatement } from '../dialect.js';
import { driverErrorOf } from '../driver-error.js';

/** The used part of a `pg` client. */
interface PgClient {
  query(query: { name?: string; text: string; values?: readonly unknown[] }): Promise<{ rows: unknown[] }>;
}

/** Behind a pooler the server's connection changes: the name does not exist there, or exists already. */
const NAME_ERROR_CODES = ['26000', '42P05'];

/**
 * Names statements, so that the server parses and plans each text once for each connection. After the first error that shows
 * a pooler without support for named statements, sends all of them unnamed.
 */
export function createPostgresSender(): SendStatement {
  const names = new Map<string, string>();
  let canNameStatements = true;
  const statementNameOf = (text: string) => {
    // The same in every process: behind a pooler, two processes may use one server connection.
    const name = names.get(text) ?? `lock_${createHash('sha1').update(text).digest('hex')}`;
    names.set(text, name);
    return name;
  };
  return async (driverConnection, text, values) => {
    const client = driverConnection as PgClient;
    if (values.length === 0 || !canNameStatements) return (await client.query({ text, values })).rows;
    try {
      return (await client.query({ name: statementNameOf(text), text, values })).rows;
    } catch (cause) {
      if (!NAME_ERROR_CODES.includes(driverErrorOf(cause).code)) throw cause;
      canNameStatements = false;
      // Sending it again is safe: these errors are raised before the statement takes effect.
      return (await client.query({ text, values })).rows;
    }
  };
}
