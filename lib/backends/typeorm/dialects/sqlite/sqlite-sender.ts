import type { SendStatement } from '../dialect.js';

/** What we use of a database of `better-sqlite3`, and of what speaks like it. */
interface SqliteDatabase {
  prepare(sql: string): PreparedStatement;
}

interface PreparedStatement {
  readonly reader: boolean;
  safeIntegers?(isOn: boolean): unknown;
  all(...parameters: readonly unknown[]): unknown[];
  run(...parameters: readonly unknown[]): { readonly changes: number };
}

/** Answers rows, or how many rows were changed where a statement gives none. */
export function createSqliteSender(): SendStatement {
  const prepared = new WeakMap<object, Map<string, PreparedStatement>>();
  const statementsOf = (driverConnection: object) => {
    const statements = prepared.get(driverConnection) ?? new Map<string, PreparedStatement>();
    prepared.set(driverConnection, statements);
    return statements;
  };
  return (driverConnection, sql, parameters) => {
    // A PRAGMA takes effect while it is prepared.
    if (sql.startsWith('PRAGMA'))
      return runStatement((driverConnection as SqliteDatabase).prepare(sql), parameters);
    const statements = statementsOf(driverConnection);
    let statement = statements.get(sql);
    if (!statement) {
      statement = (driverConnection as SqliteDatabase).prepare(sql);
      // The user's `prepareDatabase` may have asked for BigInt. Only rows have a form, and only then it can be set.
      if (statement.reader) statement.safeIntegers?.(false);
      statements.set(sql, statement);
    }
    return runStatement(statement, parameters);
  };
}

const runStatement = (statement: PreparedStatement, parameters: readonly unknown[]) =>
  statement.reader ? statement.all(...parameters) : statement.run(...parameters).changes;
