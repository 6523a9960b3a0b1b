import type { Taken, UnknownResult } from '../backend.js';

/** Pauses between two looks at a taken key grow from the first to the second. */
const MIN_BACKOFF_MS = 10;
const MAX_BACKOFF_MS = 200;
/** Who is called looks only to refresh a place in line, and because a call may be lost. */
const MAX_NOTIFIED_BACKOFF_MS = 2_000;
/** While the store is away. */
const MAX_OUTAGE_BACKOFF_MS = 1_000;
/** After the end of the other's lease, so that many who wait do not look at once. */
const MAX_JITTER_MS = 10;

/** How long to wait between two looks. Random, so that many who wait do not knock in step. */
export function backoffMs(tries: number, result: Taken | UnknownResult): number {
  if (result.kind === 'unknown') return exponentialMs(tries, MAX_OUTAGE_BACKOFF_MS);
  const maxMs = result.willBeNotified
    ? MAX_NOTIFIED_BACKOFF_MS * (0.5 + Math.random() / 2)
    : exponentialMs(tries, MAX_BACKOFF_MS);
  // A lost race is answered with no rest at all: that is no reason to hurry.
  return result.remainingMs > 0
    ? Math.min(maxMs, result.remainingMs + 1 + Math.random() * MAX_JITTER_MS)
    : maxMs;
}

const exponentialMs = (tries: number, maxMs: number) =>
  Math.min(MIN_BACKOFF_MS * 2 ** (tries - 1), maxMs) * (0.5 + Math.random() / 2);

/** How long to stay back for those of other processes, where the store has no line for them. */
export const contendedBackoffMs = () => 5 + Math.random() * 20;
