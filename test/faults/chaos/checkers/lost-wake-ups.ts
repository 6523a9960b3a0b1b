import { type Acquisition, endOf } from '../workers/history.js';
import type { InjectedFault } from '../injected-fault.js';
import type { Stop } from './late-results.js';

interface Limits {
  /** A key that was free for so long must have been given to who waits for it. */
  readonly freeMs: number;
  readonly faults: readonly InjectedFault[];
  readonly stops: readonly Stop[];
  /** For so long a store keeps what a dead process leaves, if that is longer than its lease. */
  readonly sessionMs?: number | undefined;
}

/** It ends one process, and is nothing to those who wait in others. */
const HARMLESS = 'process killed';

/** Nobody is sent away as too late while the key has been free for long, and nothing else was wrong. */
export function findLostWakeUps(
  acquisitions: readonly Acquisition[],
  { freeMs, faults, stops, sessionMs = 0 }: Limits,
): Acquisition[] {
  const disturbances = [
    ...faults
      .filter(({ nemesis }) => nemesis !== HARMLESS)
      .map(({ startedAtMs, healedAtMs }) => [startedAtMs, healedAtMs] as const),
    ...stops.map(({ fromMs, toMs }) => [fromMs, toMs] as const),
  ];
  return acquisitions.filter((acquisition) => {
    const { key, refused, waitMs, answeredAtMs } = acquisition;
    if (refused !== 'timeout' || waitMs < freeMs || answeredAtMs === undefined) return false;
    const isBusy = ([fromMs, toMs]: readonly [number, number]) =>
      fromMs < answeredAtMs && toMs > answeredAtMs - freeMs;
    if (disturbances.some(isBusy)) return false;
    return !acquisitions.some(
      (other) => other.key === key && other !== acquisition && isBusy(takenBy(other, sessionMs)),
    );
  });
}

/** When somebody may have had the key, whether he knew of it or not. */
function takenBy(acquisition: Acquisition, sessionMs: number): readonly [number, number] {
  const { answeredAtMs = Infinity, killedAtMs = Infinity, leaseMs, refused, hold } = acquisition;
  if (hold)
    return [
      hold.fromMs,
      hold.released === 'ours' ? endOf(hold) : hold.untilMs + Math.max(hold.leaseMs, sessionMs),
    ];
  // Who leaves may have been granted the key just then.
  const leftAtMs = Math.min(answeredAtMs, killedAtMs);
  return [leftAtMs, refused === 'taken' ? leftAtMs : leftAtMs + Math.max(leaseMs, sessionMs)];
}
