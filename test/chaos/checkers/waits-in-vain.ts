import { type Ask, endOf } from '../history.js';
import type { Strike } from '../strike.js';
import type { Stop } from './waits.js';

interface Limits {
  /** A key that was free for so long must have been given to who waits for it. */
  readonly freeMs: number;
  readonly strikes: readonly Strike[];
  readonly stops: readonly Stop[];
}

/** It ends one process, and is nothing to those who wait in others. */
const HARMLESS = 'process killed';

/** Nobody is sent away as too late while the key has been free for long, and nothing else was wrong. */
export function waitsInVain(asks: readonly Ask[], { freeMs, strikes, stops }: Limits): Ask[] {
  const troubles = [
    ...strikes
      .filter(({ nemesis }) => nemesis !== HARMLESS)
      .map(({ struckAtMs, healedAtMs }) => [struckAtMs, healedAtMs] as const),
    ...stops.map(({ fromMs, toMs }) => [fromMs, toMs] as const),
  ];
  return asks.filter((ask) => {
    const { key, refused, waitMs, answeredAtMs } = ask;
    if (refused !== 'timeout' || waitMs < freeMs || answeredAtMs === undefined) return false;
    const isBusy = ([fromMs, toMs]: readonly [number, number]) =>
      fromMs < answeredAtMs && toMs > answeredAtMs - freeMs;
    if (troubles.some(isBusy)) return false;
    return !asks.some((other) => other.key === key && other !== ask && isBusy(takenBy(other)));
  });
}

/** When somebody may have had the key, whether he knew of it or not. */
function takenBy(ask: Ask): readonly [number, number] {
  const { answeredAtMs = Infinity, killedAtMs = Infinity, leaseMs, refused, hold } = ask;
  if (hold) return [hold.fromMs, hold.released === 'ours' ? endOf(hold) : hold.untilMs + hold.leaseMs];
  // Who leaves may have been granted the key just then, for a lease at most.
  const leftAtMs = Math.min(answeredAtMs, killedAtMs);
  return [leftAtMs, refused === 'taken' ? leftAtMs : leftAtMs + leaseMs];
}
