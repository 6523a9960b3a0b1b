import type { SendStatement } from '../dialect.js';

/** The used part of a `better-sqlite3` database, or of a driver with the same interface. */
interface SqliteDatabase {
  prepare(sql: string): PreparedStatement;
}

interface PreparedStatement {
  readonly reader: boolean;
  safeIntegers?(isOn: boolean): unknown;
  all(...parameters: readonly unknown[]): unknown[];
  run(...parameters: readonly unknown[]): { readonly changes: number };
}

/** Returns the rows, or the number of changed rows if the statement returns none. */
export function createSqliteSender(): SendStatement {
  const prepared = new WeakMap<object, Map<string, PreparedStatement>>();
  const statementsOf = (driverConnection: object) => {
    const statements = prepared.get(driverConnection) ?? new Map<string, PreparedStatement>();
    prepared.set(driverConnection, statements);
    return statements;
  };
  return (driverConnection, sql, parameters) => {
    // A PRAGMA may take effect while it is prepared, so it is prepared each time.
    if (sql.startsWith('PRAGMA'))
      return runStatement((driverConnection as SqliteDatabase).prepare(sql), parameters);
    const statements = statementsOf(driverConnection);
    let statement = statements.get(sql);
    if (!statement) {
      statement = (driverConnection as SqliteDatabase).prepare(sql);
      // The user's `prepareDatabase` may have turned on BigInt. The driver can turn it off only for statements with rows.
      if (statement.reader) statement.safeIntegers?.(false);
      statements.set(sql, statement);
    }
    return runStatement(statement, parameters);
  };
}

const runStatement = (statement: PreparedStatement, parameters: readonly unknown[]) =>
  statement.reader ? statement.all(...parameters) : statement.run(...parameters).changes;
