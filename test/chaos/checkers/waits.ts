import type { Ask } from '../history.js';

/** Who was not answered in his time. */
export interface EndlessWait {
  readonly ask: Ask;
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
export function endlessWaits(asks: readonly Ask[], { boundMs, stops }: Limits): EndlessWait[] {
  return asks.flatMap((ask) => {
    const { askedAtMs, waitMs, answeredAtMs = Infinity, killedAtMs, worker } = ask;
    if (answeredAtMs === Infinity && killedAtMs !== undefined) return [];
    const stoodStillMs = stops
      .filter((stop) => stop.worker === worker)
      .reduce((sum, { fromMs, toMs }) => sum + overlapMs([fromMs, toMs], [askedAtMs, answeredAtMs]), 0);
    const lateMs = answeredAtMs - askedAtMs - waitMs - stoodStillMs;
    return lateMs > boundMs ? [{ ask, lateMs }] : [];
  });
}

const overlapMs = (one: readonly [number, number], other: readonly [number, number]): number =>
  Math.max(0, Math.min(one[1], other[1]) - Math.max(one[0], other[0]));
