import { systemClock } from '../../core/clock.js';
import type { Plan } from './plan.js';

const MINUTE_MS = 60_000;
const HOUR_MS = 60 * MINUTE_MS;
/** How far apart the probes are, and over which time: they find the pauses of an hour, and the nights and weekends. */
const PROBES = [
  { everyMs: 5 * MINUTE_MS, forMs: 4 * HOUR_MS },
  { everyMs: HOUR_MS, forMs: 8 * 24 * HOUR_MS },
];

/** By the text of the plan: many jobs that are created at run time have the same schedule. */
const known = new Map<string, number>();
const MAX_KNOWN = 1_000;

/**
 * About the longest time between two instants of the plan in the next days: a plan of office hours has nights and weekends. It
 * looks at some hundred times only, because each look takes time.
 */
export function longestPeriodMs(plan: Plan): number {
  const present = known.get(plan.text);
  if (present !== undefined) return present;
  if (known.size >= MAX_KNOWN) known.clear();
  const found = findLongestPeriod(plan);
  known.set(plan.text, found);
  return found;
}

function findLongestPeriod({ next, latest }: Plan): number {
  const nowMs = Math.floor(systemClock.wallMs());
  let longestMs = 0;
  for (const { everyMs, forMs } of PROBES) {
    let longestWaitMs = 0;
    for (let atMs = nowMs; atMs < nowMs + forMs;) {
      const nextMs = next(atMs);
      if (nextMs === undefined) break;
      if (nextMs - atMs > longestWaitMs) {
        longestWaitMs = nextMs - atMs;
        longestMs = Math.max(longestMs, nextMs - (latest(nextMs - 1) ?? atMs));
      }
      atMs = Math.max(atMs + everyMs, nextMs);
    }
  }
  return longestMs;
}
