import { type Bench, type Case, LEASE_MS, askOne } from '../bench.js';
import { COLUMNS, callOnOwnKeys, figuresOf } from '../own-keys.js';

interface OwnKeys extends Case {
  readonly callers: number;
  readonly warmUpMs: number;
  readonly forMs: number;
}

/** Many callers in one process, each again and again on a key of its own. */
export const b2: Bench<OwnKeys> = {
  name: 'B2',
  title: 'Many callers, each on a key of its own',
  columns: COLUMNS,
  better: 'more',
  leaseMs: LEASE_MS,
  isPinned: true,
  timeoutMs: 30_000,
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
      const onTurn = (askedMs: number, doneMs: number) => {
        if (doneMs >= fromMs && doneMs <= endMs) tookMs.push(doneMs - askedMs);
      };
      await callOnOwnKeys(session, { callers, endMs, onTurn });
      return figuresOf(tookMs, forMs);
    },
};
