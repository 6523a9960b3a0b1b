import type { QueryRunner } from 'typeorm';
import { LockConfigError } from '../../../../core/errors.js';

/** The connection of libsql, which has the interface of better-sqlite3 and more. */
interface LibsqlConnection {
  readonly inTransaction: boolean;
  exec(sql: string): void;
  syncUntil(index: number): void;
}

/**
 * libsql does not reset a statement that found the file busy. While such a statement is open, SQLite commits no other statement
 * by itself, though it reports success. A COMMIT is refused then, so an empty transaction shows it.
 *
 * @throws LockConfigError if what was written outside of a transaction is not committed. It is undone.
 */
export async function throwUnlessCommitted(runner: QueryRunner): Promise<void> {
  const connection = (await runner.connect()) as object;
  if (!isLibsql(connection) || connection.inTransaction) return;
  connection.exec('BEGIN');
  try {
    connection.exec('COMMIT');
  } catch (cause) {
    connection.exec('ROLLBACK');
    throw notCommittedError(cause);
  }
}

const isLibsql = (connection: object): connection is LibsqlConnection => 'syncUntil' in connection;

const notCommittedError = (cause: unknown) =>
  new LockConfigError(
    `Expected what was written to be committed, but libsql commits nothing outside of transactions since one of its statements ` +
      `found the file busy. It is undone. Repeat the statement that failed with SQLITE_BUSY, or restart the process. To ` +
      `prevent it, use better-sqlite3.`,
    { cause },
  );
