import { createHash } from 'node:crypto';
import type { SendStatement } from '../dialect.js';
import { driverErrorOf } from '../driver-error.js';

/** What we use of a client of `pg`. */
interface PgClient {
  query(query: { name?: string; text: string; values?: readonly unknown[] }): Promise<{ rows: unknown[] }>;
}

/** A pooler handed us another session's connection: the name is not known there, or is already. */
const NAME_ERROR_CODES = ['26000', '42P05'];

/** Has the server parse and plan a text once for each connection, unless there is a pooler to which that means nothing. */
export function createPostgresSender(): SendStatement {
  const names = new Map<string, string>();
  let canNameStatements = true;
  const statementNameOf = (text: string) => {
    // The same in every process: behind a pooler they may meet on one connection.
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
      return (await client.query({ text, values })).rows; // It was refused before it did anything.
    }
  };
}
