import { setTimeout as sleep } from 'node:timers/promises';
import type { Case, Figures } from './bench.js';
import { CommandCount } from './command-count.js';
import type { Contender, Session } from './contender.js';
import { contenderNamed } from './contenders.js';
import type { Crew } from './crew.js';
import { machineMs, median, sum, times } from './statistics.js';
import { warmUp } from './warm-up.js';

/** Processes that all want one key. */
export interface OneKey extends Case {
  /** In each process. */
  readonly callers: number;
  /** How often each caller takes the key. */
  readonly rounds: number;
}

export type Asked = 'warm up' | (Pick<OneKey, 'callers' | 'rounds'> & { readonly startAtMs: number });

/** One acquisition, in ms on the clock of the machine. */
interface Turn {
  readonly askedMs: number;
  readonly fromMs: number;
  readonly toMs: number;
  readonly releasedMs: number;
}

export type Told = readonly Turn[];

export const takesPart = ({ store }: Contender): boolean => store === 'redis';

export const COLUMNS = [
  { figure: 'totalMs', title: 'total, ms', digits: 1 },
  { figure: 'overPureWork', title: '÷ pure work', digits: 2 },
  { figure: 'medianWaitMs', title: 'median wait, ms', digits: 1 },
  { figure: 'longestWaitMs', title: 'longest wait, ms', digits: 1 },
  { figure: 'longestOverMedian', title: 'longest ÷ median', digits: 2 },
  { figure: 'commandsPerAcquisition', title: 'commands/acquisition', digits: 2 },
  { figure: 'holdersAtOnce', title: 'holders at once' },
] as const;

const WORK_MS = 1;
/** Until then every process has heard of it. */
const START_IN_MS = 40;

export const workOnOneKey =
  (session: Session) =>
  async (asked: Asked): Promise<Told> => {
    if (asked === 'warm up') {
      await warmUp(session);
      return [];
    }
    const { callers, rounds, startAtMs } = asked;
    await sleep(startAtMs - machineMs());
    const turns: Turn[] = [];
    const caller = async () => {
      for (let left = rounds; left > 0; left -= 1) {
        const askedMs = machineMs();
        const held = await session.acquire('one');
        const fromMs = machineMs();
        await sleep(WORK_MS);
        const toMs = machineMs();
        await held.release();
        turns.push({ askedMs, fromMs, toMs, releasedMs: machineMs() });
      }
    };
    await Promise.all(times(callers, caller));
    return turns;
  };

export async function measureOneKey(crew: Crew<Asked, Told>, { callers, rounds }: OneKey): Promise<Figures> {
  const { contender, store, setting } = crew.task;
  await crew.askAll('warm up');
  const commands = new CommandCount(setting.stores.redis, contenderNamed(contender, store));
  try {
    await commands.start();
    const turns = (await crew.askAll({ callers, rounds, startAtMs: machineMs() + START_IN_MS })).flat();
    const commandsPerAcquisition = (await commands.sinceStart()) / turns.length;
    return { ...figuresOf(turns), commandsPerAcquisition };
  } finally {
    commands.close();
  }
}

function figuresOf(turns: readonly Turn[]): Figures {
  const waitsMs = turns.map(({ askedMs, fromMs }) => fromMs - askedMs);
  const totalMs =
    Math.max(...turns.map(({ releasedMs }) => releasedMs)) - Math.min(...turns.map(({ askedMs }) => askedMs));
  const longestWaitMs = Math.max(...waitsMs);
  return {
    totalMs,
    overPureWork: totalMs / sum(turns.map(({ fromMs, toMs }) => toMs - fromMs)),
    medianWaitMs: median(waitsMs),
    longestWaitMs,
    longestOverMedian: longestWaitMs / median(waitsMs),
    holdersAtOnce: mostAtOnce(turns),
  };
}

/** The most that ever held the key at one moment; the timelines of all processes are on one clock. */
function mostAtOnce(turns: readonly Turn[]): number {
  const steps = turns.flatMap(({ fromMs, toMs }) => [
    { atMs: fromMs, change: 1 },
    { atMs: toMs, change: -1 },
  ]);
  steps.sort((a, b) => a.atMs - b.atMs || a.change - b.change);
  let holders = 0;
  return Math.max(...steps.map(({ change }) => (holders += change)));
}
