import { createHash } from 'node:crypto';
import type { Send } from './dialect.js';
import { errorOf } from './error-of.js';

/** What we use of a client of `pg`. */
interface Client {
  query(query: { name?: string; text: string; values?: readonly unknown[] }): Promise<{ rows: unknown[] }>;
}

/** A pooler handed us another session's connection: the name is not known there, or is already. */
const NAME_TROUBLE = ['26000', '42P05'];

/** Has the server parse and plan a text once for each connection, unless there is a pooler to which that means nothing. */
export function postgresSender(): Send {
  const names = new Map<string, string>();
  let mayName = true;
  const nameOf = (text: string) => {
    // The same in every process: behind a pooler they may meet on one connection.
    const name = names.get(text) ?? `lock_${createHash('sha1').update(text).digest('hex')}`;
    names.set(text, name);
    return name;
  };
  return async (connection, text, values) => {
    const client = connection as Client;
    if (values.length === 0 || !mayName) return (await client.query({ text, values })).rows;
    try {
      return (await client.query({ name: nameOf(text), text, values })).rows;
    } catch (cause) {
      if (!NAME_TROUBLE.includes(errorOf(cause).code)) throw cause;
      mayName = false;
      return (await client.query({ text, values })).rows; // It was refused before it did anything.
    }
  };
}
