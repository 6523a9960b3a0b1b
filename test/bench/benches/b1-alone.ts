import { type Bench, type Case, LEASE_MS } from '../bench.js';
import type { Contender, Session } from '../contender.js';
import { COLUMNS, figuresOf } from '../own-keys.js';
import { RedisCpu } from '../redis-cpu.js';

/** The first locks of a new process, or, if it is warmed up, many moments that contenders take in turn. */
interface Alone extends Case {
  /** It ends after so many locks, or after so much time. */
  readonly locks: number;
  readonly forMs: number;
  readonly warmUpMs?: number;
}

interface LockRequest extends Pick<Alone, 'locks' | 'forMs'> {
  readonly way: 'acquire' | 'withLock';
}

interface LockReply {
  readonly tookMs: readonly number[];
  readonly totalMs: number;
  /** Of all threads of the process. */
  readonly cpuMs: number;
}

const [perSecond, medianUs, p99Us] = COLUMNS;

/** Each lock on a key of its own, so that nothing is measured but the way to the store and back, twice. */
export const b1: Bench<Alone, LockRequest, LockReply> = {
  name: 'B1',
  title: 'Alone: acquire and release, one after the other',
  columns: [
    perSecond,
    { figure: 'withLockPerSecond', title: 'withLock/s' },
    medianUs,
    p99Us,
    { figure: 'nodeCpuUs', title: 'CPU of Node, µs' },
    { figure: 'redisCpuUs', title: 'CPU of Redis, µs' },
  ],
  better: 'more',
  leaseMs: LEASE_MS,
  isPinned: true,
  timeoutMs: 60_000,
  takesPart: ({ store }) => store !== 'memory',
  // Nobody waits here, so there is nothing to tune.
  cases: ({ contender, profile, isQuick }) => (profile === 'tuned' ? [] : casesOf(contender, isQuick)),
  async warmUp(workers, { warmUpMs }) {
    if (warmUpMs === undefined) return;
    const request = { locks: Infinity, forMs: warmUpMs };
    await workers.ask(0, { way: 'acquire', ...request });
    if (isOurs(workers.task.contender)) await workers.ask(0, { way: 'withLock', ...request });
  },
  async measure(workers, { locks, forMs, warmUpMs }) {
    const { contender, store, setting } = workers.task;
    const redisCpu = store === 'redis' ? await RedisCpu.since(setting.stores.redis) : undefined;
    const acquired = await workers.ask(0, { way: 'acquire', locks, forMs });
    const redisCpuMs = await redisCpu?.spentMs();
    const usOf = (cpuMs: number) => (cpuMs / acquired.tookMs.length) * 1e3;
    const withLock =
      warmUpMs !== undefined && isOurs(contender)
        ? await workers.ask(0, { way: 'withLock', locks, forMs })
        : undefined;
    return {
      ...figuresOf(acquired.tookMs, acquired.totalMs),
      nodeCpuUs: usOf(acquired.cpuMs),
      ...(redisCpuMs !== undefined && { redisCpuUs: usOf(redisCpuMs) }),
      ...(withLock && { withLockPerSecond: figuresOf(withLock.tookMs, withLock.totalMs).perSecond }),
    };
  },
  work: (session) => createLocker(session),
};

const isOurs = (contender: string) => contender.startsWith('ours');

function casesOf({ store }: Contender, isQuick: boolean): Alone[] {
  const cold = { name: 'cold', processes: 1, locks: isQuick ? 500 : 5_000, forMs: 8_000 };
  const rounds = isQuick ? { rounds: 2, warmUpMs: 500 } : { rounds: 12, warmUpMs: 8_000 };
  const warm = { name: 'warm', processes: 1, locks: Infinity, forMs: 500, ...rounds };
  if (store !== 'redis') return [cold, warm];
  // Where the client and the server share a core, the CPU time of both counts.
  const onOneCore = [cold, warm].map((one) => ({ ...one, name: `${one.name}, one core`, sharesCore: true }));
  return [cold, warm, ...onOneCore];
}

function createLocker(session: Session): (request: LockRequest) => Promise<LockReply> {
  let count = 0;
  const lock = async (way: LockRequest['way']) => {
    const key = `alone:${(count += 1)}`;
    if (way === 'withLock') return session.withLock!(key);
    const held = await session.acquire(key);
    return held.release();
  };
  return async ({ way, locks, forMs }) => {
    const tookMs: number[] = [];
    const startCpu = process.cpuUsage();
    const startMs = performance.now();
    for (let fromMs = startMs; tookMs.length < locks && fromMs < startMs + forMs;) {
      await lock(way);
      const doneMs = performance.now();
      tookMs.push(doneMs - fromMs);
      fromMs = doneMs;
    }
    const { user, system } = process.cpuUsage(startCpu);
    return { tookMs, totalMs: performance.now() - startMs, cpuMs: (user + system) / 1e3 };
  };
}
