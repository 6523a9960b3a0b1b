import type { Acquisition } from '../workers/history.js';

/** Who was not answered in his time. */
export interface LateResult {
  readonly acquisition: Acquisition;
  /** How much later than he wanted to wait; `Infinity`: not at all. */
  readonly lateMs: number;
}

/** When a process could do nothing, as it was stopped or its event loop was blocked. */
export interface Stop {
  readonly worker: string;
  readonly fromMs: number;
  readonly toMs: number;
}

interface Limits {
  /** The answer of the store may be waited for so long beyond the time of the wait. */
  readonly boundMs: number;
  readonly stops: readonly Stop[];
}

/** Everybody is answered within his time and a bound, unless his process was killed or stood still. */
export function findLateResults(
  acquisitions: readonly Acquisition[],
  { boundMs, stops }: Limits,
): LateResult[] {
  return acquisitions.flatMap((acquisition) => {
    const { askedAtMs, waitMs, answeredAtMs = Infinity, killedAtMs, worker } = acquisition;
    if (answeredAtMs === Infinity && killedAtMs !== undefined) return [];
    const stoppedMs = stops
      .filter((stop) => stop.worker === worker)
      .reduce((sum, { fromMs, toMs }) => sum + overlapMs([fromMs, toMs], [askedAtMs, answeredAtMs]), 0);
    const lateMs = answeredAtMs - askedAtMs - waitMs - stoppedMs;
    return lateMs > boundMs ? [{ acquisition, lateMs }] : [];
  });
}

const overlapMs = (one: readonly [number, number], other: readonly [number, number]): number =>
  Math.max(0, Math.min(one[1], other[1]) - Math.max(one[0], other[0]));
