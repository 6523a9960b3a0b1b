import type { QueryRunner } from 'typeorm';
import { shared } from '../../../core/copies.js';
import { LockConfigError } from '../../../core/errors.js';
import { beginWhenFree, onFreeConnection } from './only-connection.js';
import { inTurn, isInTurn } from './turns.js';

interface Guard {
  /** How many transactions of the query runner have ended. */
  ends: number;
}

const guards = shared('guards of query runners', () => new WeakMap<QueryRunner, Guard>());

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
  const { isTransactionActive } = runner;
  const { ends } = guard;
  return inTurn(guard, () => {
    if (isTransactionActive && guard.ends !== ends) throw endedBefore();
    return work();
  });
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
  const ending = (end: () => Promise<void>) => () =>
    between(() => {
      if (depthOf(runner) <= 1) guard.ends += 1;
      return end();
    });
  runner.startTransaction = (isolation) =>
    beginWhenFree(runner, () =>
      runner.isTransactionActive ? between(() => start(isolation)) : start(isolation),
    );
  runner.commitTransaction = ending(commit);
  runner.rollbackTransaction = ending(rollback);
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
