import { type Bench, type Case, QUORUM_LEASE_MS, askOne } from '../bench.js';
import { CommandCount } from '../command-count.js';
import { median, quantile, times } from '../statistics.js';
import { warmUp } from '../warm-up.js';

interface OnQuorum extends Case {
  readonly callers: number;
  readonly forMs: number;
}

/** Callers of one process on five independent servers, each again and again on a key of its own. */
export const b7: Bench<OnQuorum> = {
  name: 'B7',
  title: 'On a quorum of five Redis servers: acquire and release, each caller on a key of its own',
  columns: [
    { figure: 'perSecond', title: 'locks/s' },
    { figure: 'medianUs', title: 'median µs' },
    { figure: 'p99Us', title: 'p99 µs' },
    { figure: 'commandsPerServer', title: 'commands a server/lock', digits: 2 },
  ],
  better: 'more',
  leaseMs: QUORUM_LEASE_MS,
  isPinned: true,
  limitMs: 30_000,
  takesPart: ({ store }) => store === 'quorum',
  cases: ({ profile, isQuick }) =>
    // Nobody waits here, so there is nothing to tune.
    (profile === 'tuned' ? [] : [1, 64]).map((callers) => ({
      name: callers === 1 ? 'alone' : `${callers} callers`,
      processes: 1,
      callers,
      forMs: isQuick ? 1_000 : 3_000,
    })),
  measure: askOne,
  work: (session, { contender, setting }) => {
    const commands = new CommandCount(setting.stores.quorum[0]!, contender);
    return async ({ callers, forMs }) => {
      await warmUp(session, 300);
      await commands.start();
      const endMs = performance.now() + forMs;
      const tookMs: number[] = [];
      const caller = async (key: string) => {
        // The clock ends it, not a timer: where a store answers at once, timers would have no turn.
        for (let askedMs = performance.now(); askedMs < endMs;) {
          const held = await session.acquire(key);
          await held.release();
          const doneMs = performance.now();
          tookMs.push(doneMs - askedMs);
          askedMs = doneMs;
        }
      };
      await Promise.all(times(callers, (index) => caller(`own:${index}`)));
      return {
        perSecond: tookMs.length / (forMs / 1e3),
        medianUs: median(tookMs) * 1e3,
        p99Us: quantile(tookMs, 0.99) * 1e3,
        commandsPerServer: (await commands.sinceStart()) / tookMs.length,
      };
    };
  },
};
