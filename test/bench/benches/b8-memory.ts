import { setTimeout as sleep } from 'node:timers/promises';
import { type Bench, type Case, askOne } from '../bench.js';
import type { Held, Session } from '../contender.js';
import { times } from '../statistics.js';
import { warmUp } from '../warm-up.js';

interface Memory extends Case {
  readonly kind: 'held' | 'waiting';
  readonly count: number;
}

const LEASE_MS = 120_000;
const AT_ONCE = 100;
const SETTLE_MS = 2_000;
const COLLECTIONS = 6;

/** What one lock, and one who waits, takes of the heap. */
export const b8: Bench<Memory> = {
  name: 'B8',
  title: 'Memory',
  columns: [{ figure: 'bytes', title: 'bytes each' }],
  better: 'less',
  leaseMs: LEASE_MS,
  timeoutMs: 90_000,
  takesPart: ({ store }) => store === 'redis',
  cases: ({ profile, isQuick }) =>
    profile === 'tuned'
      ? []
      : [
          { name: 'held lock', processes: 1, kind: 'held', count: isQuick ? 2_000 : 10_000 },
          { name: 'waiter', processes: 1, kind: 'waiting', count: 1_000 },
        ],
  measure: askOne,
  work:
    (session) =>
    async ({ kind, count }) => {
      await warmUp(session, 300);
      return { bytes: (await (kind === 'held' ? hold : wait)(session, count)) / count };
    },
};

async function hold(session: Session, count: number): Promise<number> {
  const held: Held[] = [];
  const before = await heapBytes();
  for (let from = 0; from < count; from += AT_ONCE)
    held.push(...(await Promise.all(times(AT_ONCE, (index) => session.acquire(`held:${from + index}`)))));
  const used = (await heapBytes()) - before;
  // Until here, nothing of it may be collected.
  if (held.length !== count) throw new Error(`holds ${held.length} of ${count}`);
  return used;
}

async function wait(session: Session, count: number): Promise<number> {
  const held = await session.acquire('waited-for');
  let served = 0;
  const before = await heapBytes();
  for (let left = count; left > 0; left -= 1) {
    session.acquire('waited-for').then(
      () => (served += 1),
      () => undefined,
    );
  }
  await sleep(SETTLE_MS);
  const used = (await heapBytes()) - before;
  if (served > 0) throw new Error(`${served} got the lock that another one holds`);
  await held.release();
  return used;
}

async function heapBytes(): Promise<number> {
  let least = Infinity;
  for (let left = COLLECTIONS; left > 0; left -= 1) {
    globalThis.gc!();
    await sleep(3);
    const { heapUsed, external } = process.memoryUsage();
    least = Math.min(least, heapUsed + external);
  }
  return least;
}
