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
  /** How many transactions of the query runner have ended, and savepoints in them were rolled back, by their depth. */
  readonly endCounts: number[];
  /** Rejects if the transaction must not be committed. */
  beforeCommit?: (() => Promise<unknown>) | undefined;
  /** The next COMMIT or ROLLBACK is that of the transaction, whatever began within it meanwhile. */
  isEnding: boolean;
  /** A savepoint in the transaction could not be rolled back, so what was undone there would be committed. */
  isBroken: boolean;
  /** A nested transaction could not begin. TypeORM is about to roll it back all the same. */
  isBeginRefused: boolean;
}

const POLL_MS = 2;

const runnerStates = shareAcrossCopies(
  'guards of query runners',
  () => new WeakMap<QueryRunner, RunnerState>(),
);

/**
 * Says whether the query runner is still in the transaction or the savepoint, or outside of all, as it is now. A helper whose
 * steps are apart asks it before each one: a write after ROLLBACK would be committed by itself, or with the outer transaction.
 *
 * @throws LockConfigError if the transaction has ended
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
 * Runs the helpers of a query runner one after the other. A transaction there begins and ends between two helpers: a
 * statement of a helper that came after ROLLBACK would be committed by itself.
 *
 * @throws LockConfigError if the transaction has ended before the turn of the helper
 */
export async function runExclusiveOnRunner<T>(runner: QueryRunner, work: () => Promise<T>): Promise<T> {
  const state = runnerStateOf(runner);
  // A subscriber of the application may call a helper while another one writes.
  if (isRunningExclusive(state)) return work();
  const checkTransaction = createTransactionCheck(runner);
  return runExclusive(state, () => {
    checkTransaction();
    return work();
  });
}

/** Runs the check right before COMMIT, after all helpers, also those that nobody awaits. If it rejects, so does the commit. */
export function checkBeforeCommit({ queryRunner }: EntityManager, check: () => Promise<unknown>): void {
  if (queryRunner) runnerStateOf(queryRunner).beforeCommit = check;
}

/** Works outside of the transactions of others, on the only connection of a SQLite data source. */
export function runOutsideOtherTransactions<T>(runner: QueryRunner, work: () => Promise<T>): Promise<T> {
  runnerStateOf(runner);
  return onFreeConnection(runner, work);
}

/**
 * Waits for the transactions that the work has begun beside itself. They are savepoints in its own, and while one is open
 * TypeORM neither commits nor rolls back more than that. To give up would release the lock before COMMIT.
 */
export async function waitForSavepoints({ queryRunner }: EntityManager): Promise<void> {
  if (!queryRunner) return;
  const state = runnerStateOf(queryRunner);
  const isOutermost = () => {
    state.isEnding = depthOf(queryRunner) <= 1;
    return Promise.resolve(state.isEnding);
  };
  // In a turn, as one may be about to begin.
  while (!(await runExclusive(state, isOutermost))) await delay(POLL_MS);
}

function runnerStateOf(runner: QueryRunner): RunnerState {
  const known = runnerStates.get(runner);
  if (known) return known;
  const state: RunnerState = { endCounts: [], isEnding: false, isBroken: false, isBeginRefused: false };
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
        state.isBeginRefused = false;
        await start(isolation).catch((error: unknown) => {
          // TypeORM forgets the transaction around one that a subscriber has refused, which would then never end.
          if (depth > 0 && depthOf(runner) === depth)
            (runner as { isTransactionActive: boolean }).isTransactionActive = true;
          state.isBeginRefused = depth === 1 && depthOf(runner) === depth;
          // TypeORM rolls back also what could not begin, and with it the nested transaction around it.
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
    // TypeORM rolls back also what could not begin, which would end the transaction around it.
    const isOfNone = state.beforeCommit !== undefined || (state.isBeginRefused && !isCommit);
    state.isBeginRefused = false;
    if (isOuter && !state.isEnding && isOfNone) throw noNestedTransactionError();
    state.isEnding = false;
    const endOnce = async () => {
      const depth = depthOf(runner);
      const isSavepoint = depth > 1;
      // It began while we waited for our turn: TypeORM would end that one instead.
      if (isOuter && depth > 1) return false;
      // What comes after the release of a savepoint shares its fate all the same.
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
      // SQLite has ended the whole transaction, not only the nested one.
      if (wasRolledBack && depth > 1) state.isBroken = true;
    } catch (error) {
      if (depth <= 1) {
        if (depthOf(runner) > 0) await endOpenTransaction(runner);
      } else if (depthOf(runner) === depth) {
        // Otherwise TypeORM would take the end of the transaction for that of the savepoint, and commit nothing.
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

/** @throws LockConfigError if the transaction around it has ended: it would be begun on a connection that goes to the pool */
async function beginUnlessEnded(
  runner: QueryRunner,
  begin: (mayBegin: () => boolean) => Promise<boolean>,
): Promise<void> {
  const wasOpen = runner.isTransactionActive;
  if (!(await begin(() => runner.isTransactionActive || !wasOpen))) throw transactionEndedError();
}

/** 1 in a transaction, more in savepoints of TypeORM within it. */
const depthOf = (runner: QueryRunner): number =>
  (runner as { transactionDepth?: number }).transactionDepth ?? 1;

const brokenSavepointError = () =>
  new LockConfigError(
    `Expected to commit a transaction, but a nested one in it failed and could not be rolled back. All of it is rolled back.`,
  );

const noNestedTransactionError = () =>
  new LockConfigError(
    `Expected a nested transaction to commit or to roll back, but none is open: it could not begin. The transaction ` +
      `around it is still open. withLockedTransaction() ends its own one when the work has ended.`,
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
