import { AsyncLocalStorage } from 'node:async_hooks';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { expect, it } from 'vitest';
import { currentLock } from '../../../lib/core/lock-context.js';
import { MemoryBackend } from '../../../lib/backends/memory/memory-backend.js';
import type { Locks } from '../../../lib/core/locks.js';
import { bareLocks } from '../../support/bare-locks.js';
import { Gate } from '../../support/gate.js';
import { onceReachable } from '../../support/once-reachable.js';
import { until } from '../../support/until.js';

/** On the clock of the machine: simulated time has one asynchronous context. */
const open = () => bareLocks({ backend: new MemoryBackend(), namespace: 'lock' });

it('results of a lock never run in the asynchronous context of another caller', async () => {
  const locks = open();
  const request = new AsyncLocalStorage<string>();
  const lapsing = await locks.acquire('lapsing', { leaseMs: 2_000, renew: false });
  const results = new Promise((resolve) =>
    lapsing.signal.addEventListener('abort', () => resolve([request.getStore(), currentLock()?.key])),
  );
  await request.run('a request', () =>
    locks.withLock('other', {}, async () => {
      await onceReachable(() => locks.tryAcquire('arms the timer', { leaseMs: 1_000, renew: false }));
      await results;
    }),
  );
  expect(await results).toEqual([undefined, undefined]);
  await locks.close();
});

it('a query that is sent when it is awaited runs under the lock', async () => {
  const locks = open();
  // As the queries of Prisma and Knex.
  const query = { then: (resolve: (key: string | undefined) => void) => resolve(currentLock()?.key) };
  expect(await locks.withLock('key', {}, () => query as unknown as Promise<string | undefined>)).toBe('key');
  await locks.close();
});

setFlagsFromString('--expose-gc');
const collectGarbage = runInNewContext('gc') as () => void;

/** Locked work that starts its successor, from its own asynchronous context, until `last` has begun. */
async function startSuccessors(
  locks: Locks,
  { last, isOverlapping }: { last: number; isOverlapping: boolean },
) {
  const past: WeakRef<object>[] = [];
  const isOver = new Gate();
  const start = (n: number, onBegun: () => void): void => {
    void locks.withLock(`poll:${n}`, {}, async (lock) => {
      onBegun();
      if (n === last) {
        await until(() => {
          collectGarbage();
          return past.filter((ref) => ref.deref()).length <= 2;
        });
        isOver.open();
        return;
      }
      past.push(new WeakRef(lock));
      const begun = new Promise<void>((resolve) => setImmediate(() => start(n + 1, resolve)));
      if (isOverlapping) await begun;
    });
  };
  start(1, () => undefined);
  await isOver.passed;
}

it.each([
  ['when it has ended', false],
  ['while it is on', true],
])('work that starts its own successor %s is not kept in memory by it', async (_, isOverlapping) => {
  const locks = open();
  await startSuccessors(locks, { last: 50, isOverlapping });
  await locks.close();
});

it('work left running sees the lock around the one that has ended', async () => {
  const locks = open();
  const innerEnded = new Gate();
  await locks.withLock('outer', {}, async () => {
    let left: Promise<unknown> | undefined;
    await locks.withLock('inner', {}, async () => {
      left = innerEnded.passed.then(() => currentLock()?.key);
    });
    innerEnded.open();
    expect(await left).toBe('outer');
  });
  await locks.close();
});

it('inside a lock that was entered again, currentLock() is the lock of that work', async () => {
  const locks = open();
  await locks.withLock(['stock', 'other'], {}, () =>
    locks.withLock('audit', {}, async () => {
      await locks.withLock('stock', { reentrant: true }, async (lock) => {
        expect(currentLock()).toBe(lock);
        await locks.withLock('stock', { reentrant: true }, (again) => expect(currentLock()).toBe(again));
        expect(currentLock()).toBe(lock);
      });
      expect(currentLock()?.key).toBe('audit');
    }),
  );
  await locks.close();
});

it('a lock that was entered again and then released is no longer valid, and cannot be extended', async () => {
  const locks = open();
  await locks.withLock('key', {}, async (outer) => {
    const lock = await locks.acquire('key', { reentrant: true });
    expect(await lock.release()).toBe(true);
    expect(() => lock.throwIfLost()).toThrow(/released/);
    await expect(lock.extend(60_000)).rejects.toThrow(/released/);
    expect(outer.remainingMs()).toBeLessThan(60_000 / 2);
  });
  await locks.close();
});
