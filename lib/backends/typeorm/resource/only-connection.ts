import type { DataSource, QueryRunner } from 'typeorm';
import { atMost } from '../../../core/at-most.js';
import { systemClock } from '../../../core/clock.js';
import { shared } from '../../../core/copies.js';
import { LockTimeoutError } from '../../../core/errors.js';
import { delay, nextTurn } from '../../../core/real-time.js';
import { inTurn, isInTurn } from './turns.js';

/** A caller that waits for the connection may be in the transaction that has it. */
const LONGEST_WAIT_MS = 10_000;
const POLL_MS = 2;

interface Scope {
  isTaken: boolean;
  /** How many transactions have just been refused, of which TypeORM is about to roll back each one. */
  refusals: number;
}

/** For each query runner of SQLite, of which a data source has one for all. */
const scopes = shared('only connections', () => new WeakMap<QueryRunner, Scope>());

/**
 * Works while no transaction of others is open on the connection. One that would begin meanwhile waits until the end of the
 * work, in one queue with other such work.
 *
 * @throws LockTimeoutError if the connection is not free after 10 000 ms
 */
export async function onFreeConnection<T>(runner: QueryRunner, work: () => Promise<T>): Promise<T> {
  const scope = scopeOf(runner);
  if (isInTurn(scope)) return work();
  const startedAtMs = systemClock.monotonicMs();
  const leftMs = () => startedAtMs + LONGEST_WAIT_MS - systemClock.monotonicMs();
  const waitForTurn = async (before: Promise<void>) => {
    if (!(await atMost(systemClock, leftMs(), before, { awaited: true }))) throw busy();
  };
  const takenWork = async () => {
    // A transaction that begins now waits until our turn has ended.
    while (runner.isTransactionActive) {
      if (leftMs() <= 0) throw busy();
      await delay(POLL_MS);
    }
    // Seen and taken in one step.
    scope.isTaken = true;
    try {
      return await work();
    } finally {
      // Their rollback must still find the connection taken.
      while (scope.refusals > 0) await nextTurn();
      scope.isTaken = false;
    }
  };
  return inTurn(scope, takenWork, waitForTurn);
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
  const scope = scopeOf(runner);
  // A part of an open transaction, or of another request: TypeORM makes either a savepoint, and nobody can tell which it is.
  const isSavepoint = () => runner.isTransactionActive && !scope.isTaken;
  const mayBegin = () => isInTurn(scope) || isSavepoint();
  while (mayBegin()) if (await begin(mayBegin)) return;
  const waitForTurn = async (before: Promise<void>) => {
    while (!(await atMost(systemClock, LONGEST_WAIT_MS, before, { awaited: true }))) {
      // Otherwise the rollback by TypeORM would end the transaction that those before us wait for.
      if (scope.isTaken) throw refusal(scope);
    }
  };
  await inTurn(scope, () => begin(() => true), waitForTurn);
}

/**
 * Whether others work on the connection. TypeORM rolls back also what could not begin, and on the only connection that would be
 * their transaction.
 */
export function isOthers(runner: QueryRunner): boolean {
  const scope = scopes.get(runner);
  return scope !== undefined && scope.isTaken && !isInTurn(scope);
}

/** Whether it is the one that a SQLite data source has for all. */
export function isShared(runner: QueryRunner): boolean {
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

function scopeOf(runner: QueryRunner): Scope {
  const scope = scopes.get(runner) ?? { isTaken: false, refusals: 0 };
  scopes.set(runner, scope);
  return scope;
}

function refusal(scope: Scope): LockTimeoutError {
  scope.refusals += 1;
  void nextTurn().then(() => (scope.refusals -= 1));
  return busy();
}

const busy = () =>
  new LockTimeoutError(
    `Expected the only connection of the data source to be free, but another transaction still had it after ` +
      `${LONGEST_WAIT_MS} ms. Inside of a transaction use its manager, and make transactions shorter.`,
  );
