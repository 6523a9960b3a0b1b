import type { EntityManager, QueryRunner } from 'typeorm';
import { shared } from '../../../core/copies.js';
import { LockConfigError } from '../../../core/errors.js';
import { beginWhenFree, onFreeConnection, rollBackOnce } from './only-connection.js';
import { inTurn, isInTurn } from './turns.js';

interface Guard {
  /** How many transactions of the query runner have ended. */
  ends: number;
  /** Rejects if the transaction must not be committed. */
  beforeCommit?: (() => Promise<unknown>) | undefined;
}

const guards = shared('guards of query runners', () => new WeakMap<QueryRunner, Guard>());

/**
 * Says whether the query runner is still in the transaction, or outside of all, as it is now. A helper whose steps are apart
 * asks it before each one: a write after ROLLBACK would be committed by itself.
 *
 * @throws LockConfigError if the transaction has ended
 */
export function transactionNow(runner: QueryRunner): () => void {
  const guard = guardOf(runner);
  const { isTransactionActive } = runner;
  const { ends } = guard;
  return () => {
    if (isTransactionActive && guard.ends !== ends) throw endedBefore();
  };
}

/**
 * Runs the helpers of a query runner one after the other. A transaction there begins and ends between two helpers: a
 * statement of a helper that came after ROLLBACK would be committed by itself.
 *
 * @throws LockConfigError if the transaction has ended before the turn of the helper
 */
export async function inRunnerTurn<T>(runner: QueryRunner, work: () => Promise<T>): Promise<T> {
  const guard = guardOf(runner);
  // A subscriber of the application may call a helper while another one writes.
  if (isInTurn(guard)) return work();
  const checkTransaction = transactionNow(runner);
  return inTurn(guard, () => {
    checkTransaction();
    return work();
  });
}

/** Runs the check right before COMMIT, after all helpers, also those that nobody awaits. If it rejects, so does the commit. */
export function checkBeforeCommit({ queryRunner }: EntityManager, check: () => Promise<unknown>): void {
  if (queryRunner) guardOf(queryRunner).beforeCommit = check;
}

/** Works outside of the transactions of others, on the only connection of a SQLite data source. */
export function outsideOfOthers<T>(runner: QueryRunner, work: () => Promise<T>): Promise<T> {
  guardOf(runner);
  return onFreeConnection(runner, work);
}

function guardOf(runner: QueryRunner): Guard {
  const known = guards.get(runner);
  if (known) return known;
  const guard: Guard = { ends: 0 };
  guards.set(runner, guard);
  const start = runner.startTransaction.bind(runner);
  const commit = runner.commitTransaction.bind(runner);
  const rollback = runner.rollbackTransaction.bind(runner);
  const between = (step: () => Promise<void>) => (isInTurn(guard) ? step() : inTurn(guard, step));
  const ending = (end: () => Promise<void>, isCommit: boolean) => () =>
    between(async () => {
      if (depthOf(runner) > 1) return end();
      const { beforeCommit } = guard;
      guard.beforeCommit = undefined;
      guard.ends += 1;
      if (isCommit) await beforeCommit?.();
      return end();
    });
  runner.startTransaction = (isolation) =>
    beginWhenFree(runner, () =>
      runner.isTransactionActive ? between(() => start(isolation)) : start(isolation),
    );
  runner.commitTransaction = ending(commit, true);
  runner.rollbackTransaction = ending(() => rollBackOnce(runner, rollback), false);
  return guard;
}

/** 1 in a transaction, more in savepoints of TypeORM within it. */
export const depthOf = (runner: QueryRunner | undefined): number =>
  (runner as { transactionDepth?: number } | undefined)?.transactionDepth ?? 1;

const endedBefore = () =>
  new LockConfigError(
    `Expected the transaction to be open until its fenced reads and writes have ended, but it ended before one of them began. ` +
      `Await each of them in the transaction.`,
  );
