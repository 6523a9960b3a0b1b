import { type Bench, type Case, LEASE_MS, askOne } from '../bench.js';
import { CommandCount } from '../command-count.js';
import type { Held, Session } from '../contender.js';
import { median, sum, times } from '../statistics.js';
import { warmUp } from '../warm-up.js';

interface Kinds extends Case {
  readonly repetitions: number;
  readonly locksPerRound: number;
}

/** What is acquired and released, each time with keys of its own. */
const WAYS = {
  one: (name: string) => ({ key: name, kind: {} }),
  twoKeys: (name: string) => ({ key: keysOf(name, 2), kind: {} }),
  eightKeys: (name: string) => ({ key: keysOf(name, 8), kind: {} }),
  permit: (name: string) => ({ key: name, kind: { permits: 5 } }),
  write: (name: string) => ({ key: name, kind: { mode: 'write' } as const }),
};

type Way = keyof typeof WAYS | 'read';

/** Nobody waits. A read lock is acquired in a process that already reads the key, so that is its price for every further reader. */
export const b12: Bench<Kinds> = {
  name: 'B12',
  title: 'Kinds of locks, uncontended: acquire and release, one after the other',
  columns: [
    { figure: 'oneUs', title: 'one lock, µs' },
    { figure: 'twoKeysTimes', title: '2 keys, ×', digits: 2 },
    { figure: 'eightKeysTimes', title: '8 keys, ×', digits: 2 },
    { figure: 'permitTimes', title: 'permit, ×', digits: 2 },
    { figure: 'writeTimes', title: 'write lock, ×', digits: 2 },
    { figure: 'readTimes', title: 'further reader, ×', digits: 2 },
    { figure: 'readCommands', title: 'its commands/lock', digits: 3 },
  ],
  better: 'less',
  leaseMs: LEASE_MS,
  isPinned: true,
  timeoutMs: 120_000,
  takesPart: ({ name, store }) => name.startsWith('ours') && store !== 'memory',
  cases: ({ isQuick }) => [
    { name: 'alone', processes: 1, repetitions: isQuick ? 10 : 30, locksPerRound: isQuick ? 20 : 100 },
  ],
  measure: askOne,
  work: (session, { contender, setting }) => {
    const commands = new CommandCount(setting.stores.redis, contender);
    return async ({ repetitions, locksPerRound }) => {
      await warmUp(session);
      await session.acquireKind!('read', { mode: 'read' });
      const tookUs = new Map<Way, number[]>();
      const readCommands: number[] = [];
      for (let round = 0; round < repetitions; round += 1) {
        const names = times(locksPerRound, (index) => `${round}:${index}`);
        for (const way of Object.keys(WAYS) as (keyof typeof WAYS)[])
          add(tookUs, way, await usPerLock(names, (name) => acquire(session, way, name)));
        await commands.start();
        add(tookUs, 'read', await usPerLock(names, () => session.acquireKind!('read', { mode: 'read' })));
        readCommands.push(await commands.sinceStart());
      }
      return { ...figuresOf(tookUs), readCommands: sum(readCommands) / repetitions / locksPerRound };
    };
  },
};

const keysOf = (name: string, count: number) => times(count, (index) => `${name}:${index}`);

function acquire(session: Session, way: keyof typeof WAYS, name: string): Promise<Held> {
  const { key, kind } = WAYS[way](`${way}:${name}`);
  return session.acquireKind!(key, kind);
}

async function usPerLock(names: readonly string[], lock: (name: string) => Promise<Held>): Promise<number> {
  const fromMs = performance.now();
  for (const name of names) await (await lock(name)).release();
  return ((performance.now() - fromMs) / names.length) * 1e3;
}

const add = (to: Map<Way, number[]>, way: Way, us: number) => to.set(way, [...(to.get(way) ?? []), us]);

/** The median of the repetitions, and that of how many times one lock each kind took in a round. The first repetitions warm up. */
function figuresOf(tookUs: ReadonlyMap<Way, readonly number[]>): Record<string, number> {
  const counted = (way: Way) => {
    const repetitions = tookUs.get(way) ?? [];
    return repetitions.slice(Math.floor(repetitions.length / 4));
  };
  const one = counted('one');
  const figures: Record<string, number> = { oneUs: median(one) };
  for (const way of tookUs.keys())
    figures[`${way}Times`] = median(counted(way).map((us, round) => us / one[round]!));
  return figures;
}
