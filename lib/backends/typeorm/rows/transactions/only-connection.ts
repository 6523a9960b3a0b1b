import type { DataSource, QueryRunner } from 'typeorm';
import { systemClock } from '../../../../core/clock.js';
import { LockTimeoutError } from '../../../../core/errors.js';
import { shareAcrossCopies } from '../../../../core/package-copies.js';
import { delay, nextTurn } from '../../../../core/real-time.js';
import { withTimeout } from '../../../../core/requests/with-timeout.js';
import { isRunningExclusive, runExclusive } from './exclusive-runs.js';

/** Limited, because a caller that waits for the connection may itself be part of the transaction that occupies it. */
const MAX_WAIT_MS = 10_000;
const POLL_MS = 2;

interface ConnectionState {
  isInUse: boolean;
  /** How many transactions were just rejected. TypeORM is about to roll back each of them. */
  pendingRollbacks: number;
}

/** By query runner: an SQLite data source has only one. */
const connectionStates = shareAcrossCopies(
  'only connections',
  () => new WeakMap<QueryRunner, ConnectionState>(),
);

/**
 * Does the work while no other transaction is open on the connection. A transaction that would begin meanwhile waits for the
 * end of the work, in one queue with other such work.
 *
 * @throws LockTimeoutError if the connection is not free after 10 000 ms
 */
export async function onFreeConnection<T>(runner: QueryRunner, work: () => Promise<T>): Promise<T> {
  const state = connectionStateOf(runner);
  if (isRunningExclusive(state)) return work();
  const startedAtMs = systemClock.monotonicMs();
  const leftMs = () => startedAtMs + MAX_WAIT_MS - systemClock.monotonicMs();
  const waitForTurn = async (previous: Promise<void>) => {
    if (!(await withTimeout(systemClock, leftMs(), previous, { awaited: true }))) throw connectionBusyError();
  };
  const workWhenFree = async () => {
    // A transaction that would begin from now on waits until this run has ended.
    while (runner.isTransactionActive) {
      if (leftMs() <= 0) throw connectionBusyError();
      await delay(POLL_MS);
    }
    // Set in the same turn in which the connection was found free.
    state.isInUse = true;
    try {
      return await work();
    } finally {
      // The rollback of a rejected transaction must still find the connection in use.
      while (state.pendingRollbacks > 0) await nextTurn();
      state.isInUse = false;
    }
  };
  return runExclusive(state, workWhenFree, waitForTurn);
}

/**
 * Begins a transaction when no other work uses the connection.
 *
 * @param begin begins it unless `mayBegin` returns false at that moment; resolves to whether it did
 * @throws LockTimeoutError if other work still uses the connection after 10 000 ms
 */
export async function beginWhenFree(
  runner: QueryRunner,
  begin: (mayBegin: () => boolean) => Promise<boolean>,
): Promise<void> {
  const state = connectionStateOf(runner);
  // Part of the open transaction, or of another request: TypeORM makes it a savepoint in both cases, and they look the same.
  const isSavepoint = () => runner.isTransactionActive && !state.isInUse;
  const mayBegin = () => isRunningExclusive(state) || isSavepoint();
  while (mayBegin()) if (await begin(mayBegin)) return;
  const waitForTurn = async (previous: Promise<void>) => {
    while (!(await withTimeout(systemClock, MAX_WAIT_MS, previous, { awaited: true }))) {
      // If the connection is not in use, TypeORM's rollback would end the transaction that earlier runs wait for.
      if (state.isInUse) throw refusedTransactionError(state);
    }
  };
  await runExclusive(state, () => begin(() => true), waitForTurn);
}

/**
 * Whether other work uses the connection. TypeORM also rolls back a transaction that could not begin, and on the only
 * connection that would roll back the other work's transaction.
 */
export function isUsedByOthers(runner: QueryRunner): boolean {
  const state = connectionStates.get(runner);
  return state !== undefined && state.isInUse && !isRunningExclusive(state);
}

/** Whether it is the only query runner of an SQLite data source. */
export function isOnlyConnection(runner: QueryRunner): boolean {
  // TypeORM 0.3 has `connection` only, and 1.0 will drop it.
  const { connection, dataSource = connection } = runner as {
    connection: DataSource;
    dataSource?: DataSource;
  };
  return dataSource.options.type === 'better-sqlite3';
}

/** Whether SQLite has rolled the transaction back by itself, as it does when the disk is full, or at `RAISE(ROLLBACK)`. */
export async function hasRolledBack(runner: QueryRunner): Promise<boolean> {
  if (!runner.isTransactionActive) return false;
  const connection = (await runner.connect()) as { inTransaction?: boolean } | undefined;
  return connection?.inTransaction === false;
}

/**
 * Rolls back, and resolves to whether SQLite had rolled the transaction back by itself. ROLLBACK then fails, and TypeORM would
 * treat the transaction as still open.
 */
export async function rollBackOnce(runner: QueryRunner, rollback: () => Promise<void>): Promise<boolean> {
  try {
    await rollback();
    return false;
  } catch (error) {
    if (!(await hasRolledBack(runner))) throw error;
    const state = runner as { transactionDepth?: number; isTransactionActive: boolean };
    // The depth is 0 if BEGIN itself has failed.
    state.transactionDepth = Math.max(0, (state.transactionDepth ?? 1) - 1);
    state.isTransactionActive = state.transactionDepth > 0;
    return true;
  }
}

function connectionStateOf(runner: QueryRunner): ConnectionState {
  const state = connectionStates.get(runner) ?? { isInUse: false, pendingRollbacks: 0 };
  connectionStates.set(runner, state);
  return state;
}

function refusedTransactionError(state: ConnectionState): LockTimeoutError {
  state.pendingRollbacks += 1;
  void nextTurn().then(() => (state.pendingRollbacks -= 1));
  return connectionBusyError();
}

const connectionBusyError = () =>
  new LockTimeoutError(
    `Expected the only connection of the data source to be free, but another transaction still had it after ` +
      `${MAX_WAIT_MS} ms. Inside of a transaction use its manager, and make transactions shorter.`,
  );
