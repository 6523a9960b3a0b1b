import type { Send } from './dialect.js';

/** What we use of a database of `better-sqlite3`, and of what speaks like it. */
interface Database {
  prepare(sql: string): Prepared;
}

interface Prepared {
  readonly reader: boolean;
  safeIntegers?(isOn: boolean): unknown;
  all(...parameters: readonly unknown[]): unknown[];
  run(...parameters: readonly unknown[]): { readonly changes: number };
}

/** Answers rows, or how many rows were changed where a statement gives none. */
export function sqliteSender(): Send {
  const prepared = new WeakMap<object, Map<string, Prepared>>();
  const statementsOf = (connection: object) => {
    const statements = prepared.get(connection) ?? new Map<string, Prepared>();
    prepared.set(connection, statements);
    return statements;
  };
  return (connection, sql, parameters) => {
    // A PRAGMA takes effect while it is prepared.
    if (sql.startsWith('PRAGMA')) return answer((connection as Database).prepare(sql), parameters);
    const statements = statementsOf(connection);
    let statement = statements.get(sql);
    if (!statement) {
      statement = (connection as Database).prepare(sql);
      // The user's `prepareDatabase` may have asked for BigInt. Only rows have a form, and only then it can be set.
      if (statement.reader) statement.safeIntegers?.(false);
      statements.set(sql, statement);
    }
    return answer(statement, parameters);
  };
}

const answer = (statement: Prepared, parameters: readonly unknown[]) =>
  statement.reader ? statement.all(...parameters) : statement.run(...parameters).changes;
