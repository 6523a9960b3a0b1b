import { setTimeout as sleep } from 'node:timers/promises';
import { type Bench, type Case, LEASE_MS, askOne } from '../bench.js';
import { CommandCount } from '../command-count.js';
import type { Session } from '../contender.js';
import { median, times } from '../statistics.js';
import { warmUp } from '../warm-up.js';

interface Crowd extends Case {
  readonly callers: number;
  readonly timeoutMs: number;
}

/** All of one process want one key at once, and do nothing with it. */
export const b3: Bench<Crowd> = {
  name: 'B3',
  title: 'A crowd in one process, all for one key',
  columns: [
    { figure: 'totalMs', title: 'all served, ms', digits: 1 },
    { figure: 'medianWaitMs', title: 'median wait, ms', digits: 1 },
    { figure: 'commandsPerAcquisition', title: 'commands/acquisition', digits: 2 },
    { figure: 'holdersAtOnce', title: 'holders at once' },
  ],
  better: 'less',
  leaseMs: LEASE_MS,
  timeoutMs: 60_000,
  takesPart: ({ store }) => store === 'redis',
  cases: ({ isQuick }) =>
    [100, 1_000].map((callers) => ({
      name: `${callers} callers`,
      processes: 1,
      callers,
      timeoutMs: isQuick ? 10_000 : 30_000,
    })),
  measure: askOne,
  work: (session, { contender, setting }) => {
    const commands = new CommandCount(setting.stores.redis, contender);
    return async ({ callers, timeoutMs }) => {
      await warmUp(session);
      await commands.start();
      const { totalMs, waitsMs, holdersAtOnce } = await serve(session, callers, timeoutMs);
      const commandsPerAcquisition = (await commands.sinceStart()) / callers;
      return { totalMs, medianWaitMs: median(waitsMs), commandsPerAcquisition, holdersAtOnce };
    };
  },
};

async function serve(session: Session, callers: number, timeoutMs: number) {
  const fromMs = performance.now();
  const waitsMs: number[] = [];
  let holders = 0;
  let holdersAtOnce = 0;
  const caller = async () => {
    const held = await session.acquire('crowd');
    waitsMs.push(performance.now() - fromMs);
    holders += 1;
    holdersAtOnce = Math.max(holdersAtOnce, holders);
    // Others get the chance to enter, where they should not.
    await Promise.resolve();
    holders -= 1;
    await held.release();
  };
  const all = Promise.all(times(callers, caller)).then(() => 'done' as const);
  if ((await Promise.race([all, sleep(timeoutMs, undefined, { ref: false })])) !== 'done')
    throw new Error(`only ${waitsMs.length} of ${callers} were served within ${timeoutMs / 1e3} s`);
  return { totalMs: performance.now() - fromMs, waitsMs, holdersAtOnce };
}
