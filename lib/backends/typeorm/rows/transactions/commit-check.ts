import type { DataSource, EntityManager } from 'typeorm';
import { LockConfigError } from '../../../../core/errors.js';
import { driverErrorOf } from '../../dialects/dialect.js';
import { hasRolledBack } from './only-connection.js';

/** Checks whether a transaction can still be committed as a whole. */
interface CommitCheck {
  begin(manager: EntityManager): Promise<unknown>;
  /** @throws LockConfigError if the database has rolled it back after an error that was caught */
  end(manager: EntityManager): Promise<unknown>;
}

/**
 * Detects a transaction that the database has rolled back. PostgreSQL replies ROLLBACK to the COMMIT of a transaction in which
 * a statement has failed, and TypeORM treats that as success. MySQL and MariaDB roll back the transaction with all savepoints
 * at a deadlock, and commit each later statement by itself. SQLite does the same when the disk is full, and at
 * `RAISE(ROLLBACK)`.
 */
export function createCommitCheck({ options: { type } }: DataSource, key: string): CommitCheck {
  const nothing = () => Promise.resolve();
  const runOrFail = (statement: string) => async (manager: EntityManager) => {
    try {
      await manager.query(statement);
    } catch (cause) {
      throw ROLLED_BACK_CODES.has(driverErrorOf(cause).code) ? rolledBackError(key, cause) : cause;
    }
  };
  if (type === 'postgres') return { begin: nothing, end: runOrFail('SELECT 1') };
  if (type === 'better-sqlite3') {
    const end = async ({ queryRunner }: EntityManager) => {
      if (queryRunner && (await hasRolledBack(queryRunner))) throw rolledBackError(key);
    };
    return { begin: nothing, end };
  }
  return { begin: runOrFail('SAVEPOINT locked_work'), end: runOrFail('RELEASE SAVEPOINT locked_work') };
}

/** Transaction aborted (PostgreSQL), savepoint does not exist (MySQL, MariaDB). */
const ROLLED_BACK_CODES = new Set(['25P02', '1305']);

const rolledBackError = (key: string, cause?: unknown) =>
  new LockConfigError(
    `Expected the transaction of lock "${key}" to be open at the end of its work, but the database has rolled it back: a ` +
      `statement in it failed and the work caught the error, or ended the transaction itself. Let errors of the database ` +
      `pass, or run what may fail in manager.transaction(). On MySQL, MariaDB and SQLite, later statements may be committed.`,
    { key, cause },
  );
