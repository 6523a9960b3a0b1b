import type { DataSource } from 'typeorm';
import { systemClock } from '../../../../core/clock.js';
import { LockConfigError, LockTimeoutError } from '../../../../core/errors.js';
import { withTimeout } from '../../../../core/requests/with-timeout.js';
import { isRunningExclusive, runExclusive } from './exclusive-runs.js';

export interface TransactionRequest {
  readonly key: string;
  readonly waitMs: number;
  readonly signal?: AbortSignal | undefined;
}

/**
 * Runs the locked transactions of a data source one after the other. For data sources with a single connection.
 *
 * @throws LockTimeoutError if others still use the connection after `waitMs`
 * @throws LockConfigError if the transaction would wait for itself
 * @throws the reason of the signal if it aborts
 */
export async function runQueuedTransaction<T>(
  dataSource: DataSource,
  request: TransactionRequest,
  work: () => Promise<T>,
): Promise<T> {
  if (isRunningExclusive(dataSource)) throw nestedTransactionError(request.key);
  return runExclusive(dataSource, work, (previous) => waitForPrevious(previous, request));
}

async function waitForPrevious(
  previous: Promise<void>,
  { key, waitMs, signal }: TransactionRequest,
): Promise<void> {
  signal?.throwIfAborted();
  let abort = (): void => undefined;
  const aborted = new Promise<never>((_, reject) => (abort = () => reject(signal?.reason as Error)));
  signal?.addEventListener('abort', abort);
  try {
    const ended = Promise.race([previous, aborted]);
    if (waitMs === Infinity) await ended;
    else if (!(await withTimeout(systemClock, waitMs, ended, { awaited: true })))
      throw connectionBusyError(key, waitMs);
  } finally {
    signal?.removeEventListener('abort', abort);
  }
}

const connectionBusyError = (key: string, waitMs: number) =>
  new LockTimeoutError(
    `Expected the connection of the data source to be free for the transaction of lock "${key}", but other locked ` +
      `transactions still used it after ${waitMs} ms. Raise waitMs, or make the transactions shorter.`,
    { key },
  );

const nestedTransactionError = (key: string) =>
  new LockConfigError(
    `Expected no open transaction of the data source, got withLockedTransaction() inside of another one: on a single ` +
      `connection it would wait for itself. Use the manager of the outer one, under locks.withLock() if it needs a second lock.`,
    { key },
  );
