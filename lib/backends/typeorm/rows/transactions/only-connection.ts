import type { DataSource, QueryRunner } from 'typeorm';
import { systemClock } from '../../../../core/clock.js';
import { LockTimeoutError } from '../../../../core/errors.js';
import { shareAcrossCopies } from '../../../../core/package-copies.js';
import { delay, nextTurn } from '../../../../core/real-time.js';
import { withTimeout } from '../../../../core/requests/with-timeout.js';
import { isRunningExclusive, runExclusive } from './exclusive-runs.js';

/** A caller that waits for the connection may be in the transaction that has it. */
const MAX_WAIT_MS = 10_000;
const POLL_MS = 2;

interface ConnectionState {
  isInUse: boolean;
  /** How many transactions have just been refused, of which TypeORM is about to roll back each one. */
  pendingRollbacks: number;
}

/** For each query runner of SQLite, of which a data source has one for all. */
const connectionStates = shareAcrossCopies(
  'only connections',
  () => new WeakMap<QueryRunner, ConnectionState>(),
);

/**
 * Works while no transaction of others is open on the connection. One that would begin meanwhile waits until the end of the
 * work, in one queue with other such work.
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
    // A transaction that begins now waits until our turn has ended.
    while (runner.isTransactionActive) {
      if (leftMs() <= 0) throw connectionBusyError();
      await delay(POLL_MS);
    }
    // Seen and taken in one step.
    state.isInUse = true;
    try {
      return await work();
    } finally {
      // Their rollback must still find the connection taken.
      while (state.pendingRollbacks > 0) await nextTurn();
      state.isInUse = false;
    }
  };
  return runExclusive(state, workWhenFree, waitForTurn);
}

/**
 * Begins a transaction when nobody else works on the connection.
 *
 * @param begin begins it, unless `mayBegin` says no at that moment; returns whether it did
 * @throws LockTimeoutError if others still work on it after 10 000 ms
 */
export async function beginWhenFree(
  runner: QueryRunner,
  begin: (mayBegin: () => boolean) => Promise<boolean>,
): Promise<void> {
  const state = connectionStateOf(runner);
  // A part of an open transaction, or of another request: TypeORM makes either a savepoint, and nobody can tell which it is.
  const isSavepoint = () => runner.isTransactionActive && !state.isInUse;
  const mayBegin = () => isRunningExclusive(state) || isSavepoint();
  while (mayBegin()) if (await begin(mayBegin)) return;
  const waitForTurn = async (previous: Promise<void>) => {
    while (!(await withTimeout(systemClock, MAX_WAIT_MS, previous, { awaited: true }))) {
      // Otherwise the rollback by TypeORM would end the transaction that those before us wait for.
      if (state.isInUse) throw refusedTransactionError(state);
    }
  };
  await runExclusive(state, () => begin(() => true), waitForTurn);
}

/**
 * Whether others work on the connection. TypeORM rolls back also what could not begin, and on the only connection that would be
 * their transaction.
 */
export function isUsedByOthers(runner: QueryRunner): boolean {
  const state = connectionStates.get(runner);
  return state !== undefined && state.isInUse && !isRunningExclusive(state);
}

/** Whether it is the one that a SQLite data source has for all. */
export function isOnlyConnection(runner: QueryRunner): boolean {
  // TypeORM 0.3 knows the first name only, and 1 will drop it.
  const { connection, dataSource = connection } = runner as {
    connection: DataSource;
    dataSource?: DataSource;
  };
  return dataSource.options.type === 'better-sqlite3';
}

/** Whether SQLite has ended the transaction by itself, as it does when the disk is full, or at `RAISE(ROLLBACK)`. */
export async function hasRolledBack(runner: QueryRunner): Promise<boolean> {
  if (!runner.isTransactionActive) return false;
  const connection = (await runner.connect()) as { inTransaction?: boolean } | undefined;
  return connection?.inTransaction === false;
}

/**
 * TypeORM keeps its transaction open where ROLLBACK fails, also if there is none to roll back. Says whether SQLite had ended it
 * by itself.
 */
export async function rollBackOnce(runner: QueryRunner, rollback: () => Promise<void>): Promise<boolean> {
  try {
    await rollback();
    return false;
  } catch (error) {
    if (!(await hasRolledBack(runner))) throw error;
    const state = runner as { transactionDepth?: number; isTransactionActive: boolean };
    // It is 0 where BEGIN itself has failed.
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
