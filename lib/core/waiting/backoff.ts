import type { Taken, UnknownResult } from '../backend.js';

/** The pauses between two retries of a taken key grow from the minimum to the maximum. */
const MIN_BACKOFF_MS = 10;
const MAX_BACKOFF_MS = 200;
/**
 * A waiter that gets release notices retries only to keep its place in the store's queue, and in case a notice is lost.
 */
const MAX_NOTIFIED_BACKOFF_MS = 2_000;
/** While the store does not answer. */
const MAX_OUTAGE_BACKOFF_MS = 1_000;
/** Added to the end of another holder's lease, so that many waiters do not retry at the same moment. */
const MAX_JITTER_MS = 10;

/** The pause in ms before the next retry. Randomised, so that many waiters do not retry in step. */
export function backoffMs(tries: number, result: Taken | UnknownResult): number {
  if (result.kind === 'unknown') return exponentialMs(tries, MAX_OUTAGE_BACKOFF_MS);
  const maxMs = result.willBeNotified
    ? MAX_NOTIFIED_BACKOFF_MS * (0.5 + Math.random() / 2)
    : exponentialMs(tries, MAX_BACKOFF_MS);
  // After a lost race the result may have `remainingMs` 0. That is no reason to retry at once.
  return result.remainingMs > 0
    ? Math.min(maxMs, result.remainingMs + 1 + Math.random() * MAX_JITTER_MS)
    : maxMs;
}

const exponentialMs = (tries: number, maxMs: number) =>
  Math.min(MIN_BACKOFF_MS * 2 ** (tries - 1), maxMs) * (0.5 + Math.random() / 2);

/** The pause in ms that lets waiters of other processes acquire first, in a store without a wait queue. */
export const contendedBackoffMs = () => 5 + Math.random() * 20;
