import type { EntityManager, QueryRunner } from 'typeorm';
import { LockConfigError } from '../../../../core/errors.js';
import { driverErrorOf } from '../../dialects/dialect.js';
import { dataSourceOf, isInProcess, isMysql } from '../database.js';
import type { CommitProgress } from './commit-answer.js';
import { type RunnerGuard, guardOf } from './runner-guard.js';
import { throwIfLeftOpen } from './session-state.js';
import { hasRolledBack } from './transaction-state-correction.js';

export type IsolationLevel = 'READ COMMITTED';

interface CheckedTransaction {
  /** What the transaction is for, as messages say it: `lock "k"`. */
  readonly name: string;
  readonly key?: string;
  /** Unless it is the default. */
  readonly isolationLevel?: IsolationLevel | undefined;
  /** If it throws, the transaction is rolled back. */
  beforeCommit?(): void;
  /** Called if a subscriber has failed after COMMIT. Its error is thrown. */
  onFailedAfterCommit?(): void;
  /**
   * Called if COMMIT got no answer, so that the transaction may be committed. `pending`: COMMIT may still take effect. Returns the
   * error to throw instead of that of the driver.
   */
  onUnansweredCommit?(cause: unknown, outcome: 'unknown' | 'pending'): Error;
}

/**
 * Begins a transaction. Commits after the work, if the database has not rolled the transaction back meanwhile.
 *
 * @throws LockConfigError if the pool returns a connection with an open transaction, which ours would commit; if the database
 *   has rolled ours back after an error that the work caught
 */
export async function runCheckedTransaction<T>(
  owner: EntityManager,
  transaction: CheckedTransaction,
  work: (manager: EntityManager) => T | Promise<T>,
): Promise<T> {
  let commit = undefined as CommitProgress | undefined;
  try {
    return await transactionOf(owner, transaction.isolationLevel, (manager) => {
      const guard = guardOf(manager.queryRunner as QueryRunner);
      commit = guard.commitProgress;
      return runChecked({ manager, guard, transaction }, work);
    });
  } catch (cause) {
    const outcome = commit?.outcome ?? 'not committed';
    if (outcome === 'committed') transaction.onFailedAfterCommit?.();
    if (outcome === 'not committed' || outcome === 'committed') throw cause;
    throw transaction.onUnansweredCommit?.(cause, outcome) ?? cause;
  }
}

/** As `owner.transaction()`, but checks a connection of the pool before it begins. */
async function transactionOf<T>(
  owner: EntityManager,
  isolationLevel: IsolationLevel | undefined,
  work: (manager: EntityManager) => Promise<T>,
): Promise<T> {
  const begin = (manager: EntityManager) => {
    // It closes the connection if neither BEGIN nor ROLLBACK gets an answer.
    if (manager.queryRunner) guardOf(manager.queryRunner);
    return isolationLevel ? manager.transaction(isolationLevel, work) : manager.transaction(work);
  };
  // On SQLite, other calls of this turn of the event loop must see that a transaction begins.
  if (owner.queryRunner || isInProcess(owner)) return begin(owner);
  const runner = dataSourceOf(owner).createQueryRunner('master');
  try {
    await throwIfLeftOpen(runner);
    return await begin(runner.manager);
  } finally {
    await runner.release();
  }
}

interface OpenTransaction {
  readonly manager: EntityManager;
  readonly guard: RunnerGuard;
  readonly transaction: CheckedTransaction;
}

async function runChecked<T>(
  { manager, guard, transaction }: OpenTransaction,
  work: (manager: EntityManager) => T | Promise<T>,
): Promise<T> {
  // MySQL and MariaDB drop it when they roll back.
  if (isMysql(manager)) await manager.query('SAVEPOINT locked_work');
  guard.checkBeforeCommit(async () => {
    await throwIfRolledBack(manager, transaction);
    transaction.beforeCommit?.();
  });
  try {
    return await work(manager);
  } finally {
    await guard.waitForSavepoints();
  }
}

/**
 * Detects a transaction that the database has rolled back. PostgreSQL replies ROLLBACK to the COMMIT of a transaction in which
 * a statement has failed, and TypeORM treats that as success. MySQL and MariaDB roll back the transaction with all savepoints
 * at a deadlock, and commit each later statement by itself. SQLite does the same when the disk is full, and at
 * `RAISE(ROLLBACK)`.
 *
 * @throws LockConfigError if the database has rolled it back after an error that was caught
 */
async function throwIfRolledBack(manager: EntityManager, transaction: CheckedTransaction): Promise<void> {
  if (isInProcess(manager)) {
    if (await hasRolledBack(manager.queryRunner as QueryRunner)) throw rolledBackError(transaction);
    return;
  }
  try {
    await manager.query(isMysql(manager) ? 'RELEASE SAVEPOINT locked_work' : 'SELECT 1');
  } catch (cause) {
    throw ROLLED_BACK_CODES.has(driverErrorOf(cause).code) ? rolledBackError(transaction, cause) : cause;
  }
}

/** Transaction aborted (PostgreSQL), savepoint does not exist (MySQL, MariaDB). */
const ROLLED_BACK_CODES = new Set(['25P02', '1305']);

const rolledBackError = ({ name, key }: CheckedTransaction, cause?: unknown) =>
  new LockConfigError(
    `Expected the transaction of ${name} to be open at the end of its work, but the database has rolled it back: a ` +
      `statement in it failed and the work caught the error, or ended the transaction itself. Let errors of the database ` +
      `pass, or run what may fail in manager.transaction(). On MySQL, MariaDB and SQLite, later statements may be committed.`,
    { ...(key !== undefined && { key }), cause },
  );
