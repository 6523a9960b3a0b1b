import type { QueryRunner } from 'typeorm';
import { atMost } from '../../../core/at-most.js';
import { systemClock } from '../../../core/clock.js';
import { shared } from '../../../core/copies.js';
import { LockTimeoutError } from '../../../core/errors.js';
import { delay } from '../../../core/real-time.js';
import { inTurn, isInTurn } from './turns.js';

/** A caller that waits for the connection may be in the transaction that has it. */
const LONGEST_WAIT_MS = 10_000;
const POLL_MS = 2;

interface Scope {
  isTaken: boolean;
}

/** For each query runner of SQLite, of which a data source has one for all. */
const scopes = shared('only connections', () => new WeakMap<QueryRunner, Scope>());

/**
 * Works while no transaction of others is open on the connection. One that would begin meanwhile waits until the end of the
 * work.
 *
 * @throws LockTimeoutError if the connection is not free after 10 000 ms
 */
export async function onFreeConnection<T>(runner: QueryRunner, work: () => Promise<T>): Promise<T> {
  const scope = scopes.get(runner) ?? { isTaken: false };
  scopes.set(runner, scope);
  if (isInTurn(scope)) return work();
  const waitForTurn = async (before: Promise<void>) => {
    if (!(await atMost(systemClock, LONGEST_WAIT_MS, before, { awaited: true }))) throw busy();
  };
  const takenWork = async () => {
    const pause = pauses();
    // Seen and taken in one step.
    while (runner.isTransactionActive) await pause();
    scope.isTaken = true;
    try {
      return await work();
    } finally {
      scope.isTaken = false;
    }
  };
  return inTurn(scope, takenWork, waitForTurn);
}

/**
 * Begins a transaction when nobody else works on the connection.
 *
 * @throws LockTimeoutError if it is not free after 10 000 ms
 */
export async function beginWhenFree(runner: QueryRunner, begin: () => Promise<void>): Promise<void> {
  const scope = scopes.get(runner);
  const pause = pauses();
  // Seen and begun in one step.
  while (scope?.isTaken && !isInTurn(scope)) await pause();
  await begin();
}

/** Whether SQLite has ended the transaction by itself, as it does when the disk is full, or at `RAISE(ROLLBACK)`. */
export async function hasRolledBack(runner: QueryRunner): Promise<boolean> {
  const connection = (await runner.connect()) as { inTransaction?: boolean } | undefined;
  return runner.isTransactionActive && connection?.inTransaction === false;
}

/** TypeORM keeps its transaction open where ROLLBACK fails, also if there is none to roll back. */
export async function rollBackOnce(runner: QueryRunner, rollback: () => Promise<void>): Promise<void> {
  try {
    await rollback();
  } catch (error) {
    if (!(await hasRolledBack(runner))) throw error;
    const state = runner as { transactionDepth?: number; isTransactionActive: boolean };
    state.transactionDepth = (state.transactionDepth ?? 1) - 1;
    state.isTransactionActive = state.transactionDepth > 0;
  }
}

function pauses(): () => Promise<void> {
  const startedAtMs = systemClock.monotonicMs();
  return async () => {
    if (systemClock.monotonicMs() - startedAtMs > LONGEST_WAIT_MS) throw busy();
    await delay(POLL_MS);
  };
}

const busy = () =>
  new LockTimeoutError(
    `Expected the only connection of the data source to be free, but another transaction still had it after ` +
      `${LONGEST_WAIT_MS} ms. Inside of a transaction use its manager, and make transactions shorter.`,
  );
