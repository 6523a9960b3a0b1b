import type { DataSource } from 'typeorm';
import { atMost } from '../../../core/at-most.js';
import { systemClock } from '../../../core/clock.js';
import { LockConfigError, LockTimeoutError } from '../../../core/errors.js';
import { inTurn, isInTurn } from './turns.js';

export interface TurnRequest {
  readonly key: string;
  readonly waitMs: number;
  readonly signal?: AbortSignal | undefined;
}

/**
 * Runs locked transactions of a data source one after the other, for one that has a single connection.
 *
 * @throws LockTimeoutError if others still work after `waitMs`; LockConfigError if the work would wait for itself; the reason
 *   of the signal
 */
export async function inTransactionTurn<T>(
  dataSource: DataSource,
  request: TurnRequest,
  work: () => Promise<T>,
): Promise<T> {
  if (isInTurn(dataSource)) throw nested(request.key);
  return inTurn(dataSource, work, (before) => waitFor(before, request));
}

async function waitFor(before: Promise<void>, { key, waitMs, signal }: TurnRequest): Promise<void> {
  signal?.throwIfAborted();
  let abort = (): void => undefined;
  const aborted = new Promise<never>((_, reject) => (abort = () => reject(signal?.reason as Error)));
  signal?.addEventListener('abort', abort);
  try {
    const ended = Promise.race([before, aborted]);
    if (waitMs === Infinity) await ended;
    else if (!(await atMost(systemClock, waitMs, ended, { awaited: true }))) throw busy(key, waitMs);
  } finally {
    signal?.removeEventListener('abort', abort);
  }
}

const busy = (key: string, waitMs: number) =>
  new LockTimeoutError(
    `Expected the connection of the data source to be free for the transaction of lock "${key}", but other locked ` +
      `transactions still used it after ${waitMs} ms. Raise waitMs, or make the transactions shorter.`,
    { key },
  );

const nested = (key: string) =>
  new LockConfigError(
    `Expected no open transaction of the data source, got withLockedTransaction() inside of another one: on a single ` +
      `connection it would wait for itself. Use the manager of the outer one, under locks.withLock() if it needs a second lock.`,
    { key },
  );
