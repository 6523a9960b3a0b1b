import type { Taken, Unknown } from './backend.js';

/** Pauses between two looks at a taken key grow from the first to the second. */
const SHORTEST_PAUSE_MS = 10;
const LONGEST_PAUSE_MS = 200;
/** Who is called looks only to refresh a place in line, and because a call may be lost. */
const LONGEST_CALLED_PAUSE_MS = 2_000;
/** While the store is away. */
const LONGEST_OUTAGE_PAUSE_MS = 1_000;
/** After the end of the other's lease, so that many who wait do not look at once. */
const LONGEST_SPREAD_MS = 10;

/** How long to wait between two looks. Random, so that many who wait do not knock in step. */
export function pauseMs(tries: number, answer: Taken | Unknown): number {
  if (answer.kind === 'unknown') return growing(tries, LONGEST_OUTAGE_PAUSE_MS);
  const longestMs = answer.isCalled
    ? LONGEST_CALLED_PAUSE_MS * (0.5 + Math.random() / 2)
    : growing(tries, LONGEST_PAUSE_MS);
  // A lost race is answered with no rest at all: that is no reason to hurry.
  return answer.remainingMs > 0
    ? Math.min(longestMs, answer.remainingMs + 1 + Math.random() * LONGEST_SPREAD_MS)
    : longestMs;
}

const growing = (tries: number, longestMs: number) =>
  Math.min(SHORTEST_PAUSE_MS * 2 ** (tries - 1), longestMs) * (0.5 + Math.random() / 2);

/** How long to stay back for those of other processes, where the store has no line for them. */
export const courtesyMs = () => 5 + Math.random() * 20;
