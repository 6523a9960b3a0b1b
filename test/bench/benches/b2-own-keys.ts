import { type Bench, type Case, LEASE_MS, askOne } from '../bench.js';
import { median, quantile, times } from '../statistics.js';

interface OwnKeys extends Case {
  readonly callers: number;
  readonly warmUpMs: number;
  readonly forMs: number;
}

/** Many callers in one process, each again and again on a key of its own. */
export const b2: Bench<OwnKeys> = {
  name: 'B2',
  title: 'Many callers, each on a key of its own',
  columns: [
    { figure: 'perSecond', title: 'locks/s' },
    { figure: 'medianUs', title: 'median µs' },
    { figure: 'p99Us', title: 'p99 µs' },
  ],
  better: 'more',
  leaseMs: LEASE_MS,
  isPinned: true,
  limitMs: 30_000,
  takesPart: ({ store }) => store !== 'memory',
  cases: ({ profile, isQuick }) =>
    // Nobody waits here, so there is nothing to tune.
    (profile === 'tuned' ? [] : [64, 256]).map((callers) => ({
      name: `${callers} callers`,
      processes: 1,
      callers,
      warmUpMs: isQuick ? 200 : 500,
      forMs: isQuick ? 1_000 : 2_000,
    })),
  measure: askOne,
  work:
    (session) =>
    async ({ callers, warmUpMs, forMs }) => {
      const fromMs = performance.now() + warmUpMs;
      const endMs = fromMs + forMs;
      const tookMs: number[] = [];
      const caller = async (key: string) => {
        // The clock ends it, not a timer: where a store answers at once, timers would have no turn.
        for (let askedMs = performance.now(); askedMs < endMs;) {
          const held = await session.acquire(key);
          await held.release();
          const doneMs = performance.now();
          if (doneMs >= fromMs && doneMs <= endMs) tookMs.push(doneMs - askedMs);
          askedMs = doneMs;
        }
      };
      await Promise.all(times(callers, (index) => caller(`own:${index}`)));
      return {
        perSecond: tookMs.length / (forMs / 1e3),
        medianUs: median(tookMs) * 1e3,
        p99Us: quantile(tookMs, 0.99) * 1e3,
      };
    },
};
