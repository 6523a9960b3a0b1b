import type { EntityManager, QueryRunner } from 'typeorm';
import { LockConfigError } from '../../../../core/errors.js';
import { shareAcrossCopies } from '../../../../core/package-copies.js';
import { delay } from '../../../../core/real-time.js';
import { endOpenTransaction } from './end-open-transaction.js';
import { isRunningExclusive, runExclusive } from './exclusive-runs.js';
import {
  beginWhenFree,
  isOnlyConnection,
  isUsedByOthers,
  onFreeConnection,
  rollBackOnce,
} from './only-connection.js';

interface RunnerState {
  /** By depth: how many transactions of the query runner have ended, and how many savepoints were rolled back. */
  readonly endCounts: number[];
  /** Rejects if the transaction must not be committed. */
  beforeCommit?: (() => Promise<unknown>) | undefined;
  /** The next COMMIT or ROLLBACK ends the outermost transaction, even if a nested one has begun meanwhile. */
  isEnding: boolean;
  /** A savepoint could not be rolled back, so a commit would also commit the statements of the failed nested transaction. */
  isBroken: boolean;
}

const POLL_MS = 2;

const runnerStates = shareAcrossCopies(
  'guards of query runners',
  () => new WeakMap<QueryRunner, RunnerState>(),
);

/**
 * Returns a check that throws a `LockConfigError` if the transaction or savepoint in which the query runner is now has ended. A
 * helper with several steps calls the check before each step: a write after ROLLBACK would be committed by itself, or with the
 * outer transaction.
 */
export function createTransactionCheck(runner: QueryRunner): () => void {
  const state = runnerStateOf(runner);
  const depth = runner.isTransactionActive ? depthOf(runner) : 0;
  const countEnds = () => state.endCounts.slice(0, depth + 1).reduce((sum, ends) => sum + ends, 0);
  const before = countEnds();
  return () => {
    if (countEnds() !== before) throw transactionEndedError();
  };
}

/**
 * Runs the helpers of one query runner one after the other. Transactions begin and end between two helpers, never within one:
 * a statement after ROLLBACK would be committed by itself.
 *
 * @throws LockConfigError if the transaction has ended before the helper could begin
 */
export async function runExclusiveOnRunner<T>(runner: QueryRunner, work: () => Promise<T>): Promise<T> {
  const state = runnerStateOf(runner);
  // A subscriber of the application may call a helper from within another one.
  if (isRunningExclusive(state)) return work();
  const checkTransaction = createTransactionCheck(runner);
  return runExclusive(state, () => {
    checkTransaction();
    return work();
  });
}

/** Runs the check right before COMMIT, after all helpers, even those that are not awaited. If it rejects, the commit does too. */
export function checkBeforeCommit({ queryRunner }: EntityManager, check: () => Promise<unknown>): void {
  if (queryRunner) runnerStateOf(queryRunner).beforeCommit = check;
}

/** Does the work outside of other transactions, on the only connection of an SQLite data source. */
export function runOutsideOtherTransactions<T>(runner: QueryRunner, work: () => Promise<T>): Promise<T> {
  runnerStateOf(runner);
  return onFreeConnection(runner, work);
}

/**
 * Waits until the nested transactions that the work has begun have ended. They are savepoints, and while one is open, TypeORM
 * commits or rolls back only the savepoint. There is no timeout: it would release the lock before COMMIT.
 */
export async function waitForSavepoints({ queryRunner }: EntityManager): Promise<void> {
  if (!queryRunner) return;
  const state = runnerStateOf(queryRunner);
  const isOutermost = () => {
    state.isEnding = depthOf(queryRunner) <= 1;
    return Promise.resolve(state.isEnding);
  };
  // Within a run of the queue, because a nested transaction may be about to begin.
  while (!(await runExclusive(state, isOutermost))) await delay(POLL_MS);
}

function runnerStateOf(runner: QueryRunner): RunnerState {
  const known = runnerStates.get(runner);
  if (known) return known;
  const state: RunnerState = { endCounts: [], isEnding: false, isBroken: false };
  runnerStates.set(runner, state);
  const start = runner.startTransaction.bind(runner);
  const commit = runner.commitTransaction.bind(runner);
  const rollback = runner.rollbackTransaction.bind(runner);
  const exclusively = <T>(step: () => Promise<T>) =>
    isRunningExclusive(state) ? step() : runExclusive(state, step);
  runner.startTransaction = (isolation) => {
    const begin = (mayBegin: () => boolean) =>
      exclusively(async () => {
        if (!mayBegin()) return false;
        const depth = depthOf(runner);
        if (depth === 0) state.isBroken = false;
        await start(isolation).catch((error: unknown) => {
          // If a subscriber rejects a nested transaction, TypeORM resets the state of the outer one. Then no COMMIT and no ROLLBACK is
          // sent, and a connection of a pool is closed. The only connection of SQLite must stay open.
          if (depth > 0 && depthOf(runner) === depth && isOnlyConnection(runner))
            (runner as { isTransactionActive: boolean }).isTransactionActive = true;
          // TypeORM also rolls back a transaction that could not begin, which here rolls back the nested one around it.
          if (depth > 1 && depthOf(runner) === depth) state.isBroken = true;
          throw error;
        });
        return true;
      });
    if (isOnlyConnection(runner)) return beginWhenFree(runner, begin);
    return beginUnlessEnded(runner, begin);
  };
  const guardEnd = (end: () => Promise<void>, isCommit: boolean) => async () => {
    if (isUsedByOthers(runner)) throw neverBegunError();
    const isOuter = state.isEnding || depthOf(runner) === 1;
    // TypeORM also rolls back a transaction that could not begin, which would end the locked transaction around it.
    if (isOuter && !state.isEnding && state.beforeCommit) throw noNestedTransactionError();
    state.isEnding = false;
    const endOnce = async () => {
      const depth = depthOf(runner);
      const isSavepoint = depth > 1;
      // A nested transaction began while this one was queued: TypeORM would end the nested one instead.
      if (isOuter && depth > 1) return false;
      // A released savepoint is not counted: later statements are committed or rolled back together with it anyway.
      if (!isSavepoint || !isCommit) state.endCounts[depth] = (state.endCounts[depth] ?? 0) + 1;
      if (!isSavepoint) {
        const { beforeCommit } = state;
        state.beforeCommit = undefined;
        if (isCommit) await beforeCommit?.();
        if (isCommit && state.isBroken) throw brokenSavepointError();
      }
      await end();
      return true;
    };
    while (!(await exclusively(endOnce))) await delay(POLL_MS);
  };
  const rollBackOrMarkBroken = async () => {
    const depth = depthOf(runner);
    try {
      const wasRolledBack = await rollBackOnce(runner, rollback);
      // SQLite has rolled back the whole transaction, not only the nested one.
      if (wasRolledBack && depth > 1) state.isBroken = true;
    } catch (error) {
      if (depth <= 1) {
        if (depthOf(runner) > 0) await endOpenTransaction(runner);
      } else if (depthOf(runner) === depth) {
        // Otherwise TypeORM would treat the end of the transaction as that of the savepoint, and would not end it.
        (runner as { transactionDepth?: number }).transactionDepth = depth - 1;
        state.isBroken = true;
      }
      throw error;
    }
  };
  runner.commitTransaction = guardEnd(commit, true);
  runner.rollbackTransaction = guardEnd(rollBackOrMarkBroken, false);
  return state;
}

/** @throws LockConfigError if the outer transaction has ended: a new one would begin on a connection that returns to the pool */
async function beginUnlessEnded(
  runner: QueryRunner,
  begin: (mayBegin: () => boolean) => Promise<boolean>,
): Promise<void> {
  const wasOpen = runner.isTransactionActive;
  if (!(await begin(() => runner.isTransactionActive || !wasOpen))) throw transactionEndedError();
}

/** 1 in a transaction, more in TypeORM's savepoints within it. */
const depthOf = (runner: QueryRunner): number =>
  (runner as { transactionDepth?: number }).transactionDepth ?? 1;

const brokenSavepointError = () =>
  new LockConfigError(
    `Expected to commit a transaction, but a nested one in it failed and could not be rolled back. All of it is rolled back.`,
  );

const noNestedTransactionError = () =>
  new LockConfigError(
    `Expected a nested transaction to commit or to roll back, but none is open: it could not begin. withLockedTransaction() ` +
      `ends its own one when the work has ended.`,
  );

const neverBegunError = () =>
  new LockConfigError(
    `Expected a transaction to commit or to roll back, but it never began: another one has the only connection of the data ` +
      `source.`,
  );

const transactionEndedError = () =>
  new LockConfigError(
    `Expected the transaction to be open until its fenced reads and writes have ended, but it ended before one of them began. ` +
      `Await each of them in the transaction.`,
  );
