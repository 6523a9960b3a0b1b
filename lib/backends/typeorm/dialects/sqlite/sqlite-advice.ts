import type { Session, Table } from '../dialect.js';
import { inTransaction } from './sqlite-transaction.js';

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
export const sqliteAdvice = (session: Session, { name }: Table): Promise<string | undefined> =>
  inTransaction(session, () => {
    const others = session.run(OTHER_TABLES, [name]) as unknown[];
    return others.length > 0 ? SHARED_FILE : undefined;
  });
