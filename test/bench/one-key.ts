import { setTimeout as sleep } from 'node:timers/promises';
import type { Case, Figures } from './bench.js';
import { CommandCount } from './command-count.js';
import type { Contender, Held, Session } from './contender.js';
import { contenderNamed } from './contenders.js';
import type { WorkerPool } from './worker-pool.js';
import { machineMs } from '../support/machine-clock.js';
import { median, sum, times } from './statistics.js';
import { warmUp } from './warm-up.js';

/** Processes that all want one key. */
export interface OneKey extends Case {
  /** In each process. */
  readonly callers: number;
  /** How often all callers ask for the key at one moment, after all had it. */
  readonly waves: number;
  /** How many may hold the key at once. Without it, a plain lock is measured. */
  readonly permits?: number;
  /** How long each holds it. @default 1 */
  readonly workMs?: number;
}

export type OneKeyRequest =
  'warm up' | (Pick<OneKey, 'callers' | 'permits' | 'workMs'> & { readonly startAtMs: number });

/** One acquisition, in ms on the clock of the machine. */
interface Turn {
  readonly askedMs: number;
  readonly fromMs: number;
  readonly toMs: number;
  readonly releasedMs: number;
}

export type OneKeyReply = readonly Turn[];

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
  async (request: OneKeyRequest): Promise<OneKeyReply> => {
    if (request === 'warm up') {
      await warmUp(session);
      return [];
    }
    const { callers, permits, workMs = WORK_MS, startAtMs } = request;
    const acquire = () =>
      permits === undefined ? session.acquire('one') : session.acquireKind!('one', { permits });
    await sleep(startAtMs - machineMs());
    return Promise.all(times(callers, () => takeTurn(acquire, workMs)));
  };

async function takeTurn(acquire: () => Promise<Held>, workMs: number): Promise<Turn> {
  const askedMs = machineMs();
  const held = await acquire();
  const fromMs = machineMs();
  if (workMs > 0) await sleep(workMs);
  const toMs = machineMs();
  await held.release();
  return { askedMs, fromMs, toMs, releasedMs: machineMs() };
}

export async function measureOneKey(
  workers: WorkerPool<OneKeyRequest, OneKeyReply>,
  { waves, ...wave }: OneKey,
): Promise<Figures> {
  const { contender, store, setting } = workers.task;
  await workers.askAll('warm up');
  const commands = new CommandCount(setting.stores.redis, contenderNamed(contender, store));
  try {
    await commands.start();
    const turns: Turn[][] = [];
    for (let left = waves; left > 0; left -= 1)
      turns.push((await workers.askAll({ ...wave, startAtMs: machineMs() + START_IN_MS })).flat());
    const commandsPerAcquisition = (await commands.sinceStart()) / turns.flat().length;
    return { ...figuresOf(turns, wave), commandsPerAcquisition };
  } finally {
    commands.close();
  }
}

/** Of the median wave, but for what must never happen: two holders at once. */
function figuresOf(
  waves: readonly (readonly Turn[])[],
  { permits = 1, workMs: wantedMs = WORK_MS }: Pick<OneKey, 'permits' | 'workMs'>,
): Figures {
  const totalsMs = waves.map((turns) => {
    const endMs = Math.max(...turns.map(({ releasedMs }) => releasedMs));
    return endMs - Math.min(...turns.map(({ askedMs }) => askedMs));
  });
  const workMs = waves.map((turns) => sum(turns.map(({ fromMs, toMs }) => toMs - fromMs)));
  const waitsMs = waves.map((turns) => turns.map(({ askedMs, fromMs }) => fromMs - askedMs));
  return {
    totalMs: median(totalsMs),
    ...(wantedMs > 0 && {
      overPureWork: median(totalsMs.map((totalMs, wave) => (totalMs * permits) / workMs[wave]!)),
    }),
    medianWaitMs: median(waitsMs.map(median)),
    longestWaitMs: median(waitsMs.map((waits) => Math.max(...waits))),
    longestOverMedian: median(waitsMs.map((waits) => Math.max(...waits) / median(waits))),
    holdersAtOnce: Math.max(...waves.map(mostAtOnce)),
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
