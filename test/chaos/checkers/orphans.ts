import type { Ask } from '../history.js';

/** Something of a key that the store still keeps for somebody. */
export interface Kept {
  readonly key: string;
  /** A grant, a place in line, or something that never goes away by itself. */
  readonly what: 'grant' | 'line' | 'forever';
}

/** How long the store keeps the place in line of somebody who died, at most. */
const PLACE_KEPT_MS = 12_000;

/**
 * What the store keeps although everybody who was there to give it back has done so. What was asked for by a process that
 * was killed lapses by itself, each in its time, so it is none yet.
 */
export function orphansOf(kept: readonly Kept[], asks: readonly Ask[], nowMs: number): Kept[] {
  const killed = asks.filter(({ killedAtMs }) => killedAtMs !== undefined);
  return kept.filter(({ key, what }) => {
    if (what === 'forever') return true;
    return !killed.some((ask) => {
      const lapsesInMs = what === 'line' ? PLACE_KEPT_MS : ask.leaseMs;
      return ask.key === key && nowMs - ask.killedAtMs! <= lapsesInMs + MARGIN_MS;
    });
  });
}

/** What was on its way when its sender died may arrive a little later. */
const MARGIN_MS = 6_000;
