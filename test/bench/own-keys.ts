import type { Figures } from './bench.js';
import type { Session } from './contender.js';
import { median, quantile, times } from './statistics.js';

export const COLUMNS = [
  { figure: 'perSecond', title: 'locks/s' },
  { figure: 'medianUs', title: 'median µs' },
  { figure: 'p99Us', title: 'p99 µs' },
] as const;

interface Calls {
  readonly callers: number;
  readonly endMs: number;
  readonly onTurn: (askedMs: number, doneMs: number) => void;
}

/** Callers of one process, each of whom takes and gives back a key of its own again and again. */
export async function callOnOwnKeys(session: Session, { callers, endMs, onTurn }: Calls): Promise<void> {
  const caller = async (key: string) => {
    // The clock ends it, not a timer: where a store answers at once, timers would have no turn.
    for (let askedMs = performance.now(); askedMs < endMs;) {
      const held = await session.acquire(key);
      await held.release();
      const doneMs = performance.now();
      onTurn(askedMs, doneMs);
      askedMs = doneMs;
    }
  };
  await Promise.all(times(callers, (index) => caller(`own:${index}`)));
}

export const figuresOf = (tookMs: readonly number[], forMs: number) =>
  ({
    perSecond: tookMs.length / (forMs / 1e3),
    medianUs: median(tookMs) * 1e3,
    p99Us: quantile(tookMs, 0.99) * 1e3,
  }) satisfies Figures;
