import { type Bench, type Case, LEASE_MS, askOne } from '../bench.js';
import type { Session } from '../contender.js';
import { COLUMNS, figuresOf } from '../own-keys.js';
import { times } from '../statistics.js';

interface Alone extends Case {
  readonly locks: number;
  readonly forMs: number;
}

const [perSecond, medianUs, p99Us] = COLUMNS;

const WARM_UP_LOCKS = 500;
const WARM_UP_MS = 1_500;

/** Each lock on a key of its own, so that nothing is measured but the way to the store and back, twice. */
export const b1: Bench<Alone> = {
  name: 'B1',
  title: 'Alone: acquire and release, one after the other',
  columns: [perSecond, { figure: 'withLockPerSecond', title: 'withLock/s' }, medianUs, p99Us],
  better: 'more',
  leaseMs: LEASE_MS,
  isPinned: true,
  timeoutMs: 60_000,
  takesPart: ({ store }) => store !== 'memory',
  cases: ({ profile, isQuick }) =>
    // Nobody waits here, so there is nothing to tune.
    profile === 'tuned'
      ? []
      : [{ name: 'alone', processes: 1, locks: isQuick ? 500 : 5_000, forMs: isQuick ? 1_000 : 8_000 }],
  measure: askOne,
  work: (session) => async (request) => {
    const acquired = await measured(request, 'acquire', (key) => acquireAndRelease(session, key));
    if (!session.withLock) return acquired;
    const withLock = await measured(request, 'with', (key) => session.withLock!(key));
    return { ...acquired, withLockPerSecond: withLock.perSecond };
  },
};

async function acquireAndRelease(session: Session, key: string): Promise<void> {
  const held = await session.acquire(key);
  await held.release();
}

async function measured({ locks, forMs }: Alone, name: string, lock: (key: string) => Promise<unknown>) {
  await inTurn(`${name}:warm`, { locks: WARM_UP_LOCKS, forMs: WARM_UP_MS }, lock);
  const startedAtMs = performance.now();
  const tookMs = await inTurn(name, { locks, forMs }, lock);
  return figuresOf(tookMs, performance.now() - startedAtMs);
}

async function inTurn(
  name: string,
  { locks, forMs }: Pick<Alone, 'locks' | 'forMs'>,
  lock: (key: string) => Promise<unknown>,
): Promise<number[]> {
  const endMs = performance.now() + forMs;
  const tookMs: number[] = [];
  for (const key of times(locks, (index) => `${name}:${index}`)) {
    const fromMs = performance.now();
    if (fromMs > endMs) break;
    await lock(key);
    tookMs.push(performance.now() - fromMs);
  }
  return tookMs;
}
