import type { DataSourceOptions } from 'typeorm';
import { connectOptionsOf } from '../../connections/connection-options.js';
import { type Table, quoteWith } from '../../table/table-definition.js';
import type { Dialect, SendStatement } from '../dialect.js';
import type { Session } from '../../connections/session.js';
import { READ_JOURNAL_MODE, SET_SYNCHRONOUS } from './sqlite-sql.js';
import { classifyError, createSqliteStatements, inTransaction, isWal } from './sqlite-statements.js';

/** The driver blocks the whole process while it waits for a lock, so it gets 5 ms; the backend pauses between attempts. */
const BUSY_TIMEOUT_MS = 5;

/** Any other table, except those that TypeORM creates when it migrates the table of the locks. */
const OTHER_TABLES = `
SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'
  AND name NOT IN (?, 'migrations', 'typeorm_metadata') LIMIT 1`;

const SHARED_FILE =
  'The SQLite file of the locks also holds tables of the application. Each lock is a write to this file, and a transaction ' +
  'of yours that reads first and writes later fails with SQLITE_BUSY when a lock is written in between. Give the locks a ' +
  "file of their own: typeormBackend({ dataSource: { type: 'better-sqlite3', database: '/data/app.locks.db', enableWAL: true } }), " +
  'by the same absolute path in all replicas. ' +
  'Change it while no replica runs: replicas with different files do not exclude each other.';

/** Advises a file of its own for the locks if theirs contains other tables. */
const advice = (session: Session, { name }: Table): Promise<string | undefined> =>
  inTransaction(session, (run) => {
    const others = run(OTHER_TABLES, [name]) as unknown[];
    return others.length > 0 ? SHARED_FILE : undefined;
  });

/** SQLite from 3.35, through better-sqlite3 or a driver with the same interface. */
export const sqlite: Dialect = {
  columnTypes: {
    key: { type: 'text' },
    holder: { type: 'text' },
    instance: { type: 'text' },
    notes: { type: 'text' },
  },
  // Without a separate index a grant writes half as many pages.
  tableOptions: 'WITHOUT ROWID',
  quote: quoteWith('"'),
  connectionOptions: (options) => [
    {
      ...connectOptionsOf(options),
      timeout: BUSY_TIMEOUT_MS,
    } as unknown as DataSourceOptions,
  ],
  // Set again here, because a driver may ignore the option, and the user's `prepareDatabase` may have changed it.
  setupStatements: [`PRAGMA busy_timeout = ${BUSY_TIMEOUT_MS}`, 'PRAGMA query_only = OFF'],
  isInProcess: true,
  socketOf: () => undefined,
  createSender,
  createTable: (session, ddl) => inTransaction(session, (run) => run(ddl)),
  classifyError,
  advice,
  createStatements: createSqliteStatements,
};

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

/** What the sender keeps for one connection. */
interface PreparedConnection {
  readonly statements: Map<string, PreparedStatement>;
  /** The last PRAGMA that set `synchronous`, which nothing else sets. */
  synchronous?: string;
  /** The answer that the file has WAL. No other process can end that while this connection is open. */
  wal?: readonly unknown[];
}

/** Returns the rows, or the number of changed rows if the statement returns none. */
function createSender(): SendStatement {
  const connections = new WeakMap<object, PreparedConnection>();
  return (driverConnection, sql, parameters) => {
    let connection = connections.get(driverConnection);
    if (!connection) {
      connection = { statements: new Map() };
      connections.set(driverConnection, connection);
    }
    if (sql.startsWith('PRAGMA')) return runPragma(connection, driverConnection as SqliteDatabase, sql);
    let statement = connection.statements.get(sql);
    if (!statement) {
      statement = (driverConnection as SqliteDatabase).prepare(sql);
      // The user's `prepareDatabase` may have turned on BigInt. The driver can turn it off only for statements with rows.
      if (statement.reader) statement.safeIntegers?.(false);
      connection.statements.set(sql, statement);
    }
    return runStatement(statement, parameters);
  };
}

/** Prepares it each time, because it may take effect while it is prepared; but runs none that would change nothing. */
function runPragma(connection: PreparedConnection, database: SqliteDatabase, sql: string): unknown {
  if (sql === connection.synchronous) return 0;
  if (sql === READ_JOURNAL_MODE && connection.wal) return connection.wal;
  const result = runStatement(database.prepare(sql), []);
  if (sql.startsWith(SET_SYNCHRONOUS)) connection.synchronous = sql;
  if (sql === READ_JOURNAL_MODE && isWal(result)) connection.wal = result as readonly unknown[];
  return result;
}

const runStatement = (statement: PreparedStatement, parameters: readonly unknown[]) =>
  statement.reader ? statement.all(...parameters) : statement.run(...parameters).changes;
