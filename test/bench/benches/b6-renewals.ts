import { setTimeout as sleep } from 'node:timers/promises';
import { Redis } from 'ioredis';
import { type Bench, type Case, askOne } from '../bench.js';
import { CommandCount } from '../command-count.js';
import type { Held } from '../contender.js';
import { times } from '../statistics.js';

interface Renewals extends Case {
  readonly locks: number;
  readonly forMs: number;
}

const LEASE_MS = 10_000;
const AT_ONCE = 200;
const MINUTE_MS = 60_000;
const SCAN_SIZE = 5_000;

/** Many locks that are kept by renewals while nothing else happens. */
export const b6: Bench<Renewals> = {
  name: 'B6',
  title: 'Held for a minute by renewals, with a lease of 10 s',
  columns: [
    { figure: 'callsPerSecond', title: 'store calls/s', digits: 1 },
    { figure: 'cpuSecondsPerMinute', title: 'CPU s/min', digits: 2 },
    { figure: 'lost', title: 'lost' },
    { figure: 'acquireMs', title: 'to acquire all, ms' },
  ],
  better: 'less',
  leaseMs: LEASE_MS,
  timeoutMs: 240_000,
  takesPart: ({ store, renews }) => store === 'redis' && renews === true,
  cases: ({ contender, profile, isQuick }) => {
    if (profile === 'tuned') return [];
    const counts = contender.kind === 'ours' ? [1_000, 10_000, 100_000] : [1_000, 10_000];
    return counts.map((locks) => ({
      name: `${locks.toLocaleString('en')} locks`,
      processes: 1,
      locks,
      // A lock that nobody renews is gone within the lease.
      forMs: isQuick ? LEASE_MS + 2_000 : MINUTE_MS,
    }));
  },
  measure: askOne,
  work: (session, { contender, setting }) => {
    const commands = new CommandCount(setting.stores.redis, contender);
    return async ({ locks, forMs }) => {
      const askedMs = performance.now();
      const held = [];
      for (let from = 0; from < locks; from += AT_ONCE) {
        const some = times(Math.min(AT_ONCE, locks - from), (index) => session.hold!(`held:${from + index}`));
        held.push(...(await Promise.all(some)));
      }
      const acquireMs = performance.now() - askedMs;

      await commands.start();
      const [fromMs, cpu] = [performance.now(), process.cpuUsage()];
      await sleep(forMs);
      const { user, system } = process.cpuUsage(cpu);
      const ranMs = performance.now() - fromMs;
      const calls = await commands.sinceStart();
      return {
        callsPerSecond: calls / (ranMs / 1e3),
        cpuSecondsPerMinute: ((user + system) / 1e6) * (MINUTE_MS / ranMs),
        lost: Math.max(
          locks - (await countHeld(held, setting.stores.redis)),
          held.filter((lock) => lock.isOurs?.() === false).length,
        ),
        acquireMs,
      };
    };
  },
};

/** How many the store still keeps for their holders. */
async function countHeld(held: readonly Held[], url: string): Promise<number> {
  const checks = held.flatMap(({ isInStore }) => isInStore ?? []);
  if (checks.length === 0) return countLeases(url);
  let count = 0;
  for (let from = 0; from < checks.length; from += AT_ONCE) {
    const some = await Promise.all(checks.slice(from, from + AT_ONCE).map((check) => check()));
    count += some.filter((isThere) => isThere).length;
  }
  return count;
}

/** How many keys end within the lease: each peer keeps one such key for a lock. */
async function countLeases(url: string): Promise<number> {
  const client = new Redis(url);
  let count = 0;
  for await (const keys of client.scanStream({ count: SCAN_SIZE }) as AsyncIterable<string[]>) {
    const pipeline = client.pipeline();
    for (const key of new Set(keys)) pipeline.pttl(key);
    const answers = (await pipeline.exec()) ?? [];
    count += answers.filter(([, leftMs]) => Number(leftMs) > 0 && Number(leftMs) <= LEASE_MS).length;
  }
  client.disconnect();
  return count;
}
