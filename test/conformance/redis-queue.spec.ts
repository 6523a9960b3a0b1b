import { randomUUID } from 'node:crypto';
import { afterAll, afterEach, describe, expect, it, vi } from 'vitest';
import { Redis } from 'ioredis';
import { redisBackend } from '../../lib/backends/redis/single/redis-backend.js';
import type { AcquireRequest, LockBackend } from '../../lib/core/backend.js';
import type { ReleaseNotice } from '../../lib/core/store-notices.js';
import type { Locks } from '../../lib/core/locks.js';
import { bareLocks } from '../support/bare-locks.js';
import { serviceUrl } from '../support/environment.js';
import { onceReachable } from '../support/once-reachable.js';
import { until } from '../support/until.js';

/** Long enough for a busy machine. No spec waits for it. */
const LIMIT_MS = 20_000;

const url = serviceUrl('TEST_REDIS_URL');
const admin = new Redis(url);
const namespace = randomUUID();
const opened: Locks[] = [];
const closeAll = () => Promise.all(opened.splice(0).map((locks) => locks.close()));
/** What a spec leaves behind in this process or in the server. */
let undo: () => unknown = () => undefined;
afterEach(async () => {
  await closeAll();
  await undo();
  undo = () => undefined;
});
afterAll(() => admin.quit());

/** As another process would have it. */
function replica(backend: LockBackend = redisBackend({ url })): Locks {
  const locks = bareLocks({ backend, namespace });
  opened.push(locks);
  return locks;
}

const inLine = (key: string) => admin.zcard(`{${namespace}:${key}}:line`);
const left = async () => [
  ...(await admin.keys(`{${namespace}:*}:line`)),
  ...(await admin.keys(`{${namespace}:*}:waiting`)),
];

describe('the wait queue of a key', () => {
  it('serves processes in the order in which they were queued', async () => {
    const key = randomUUID();
    const holder = await replica().acquire(key);
    const served: number[] = [];
    const others: Promise<void>[] = [];
    for (const place of [0, 1, 2, 3, 4]) {
      const lock = replica().acquire(key, { waitMs: 60_000 });
      await until(async () => (await inLine(key)) === place + 1);
      others.push(
        lock.then(async (granted) => {
          served.push(place);
          await granted.release();
        }),
      );
    }
    await holder.release();
    await Promise.all(others);
    expect(served).toEqual([0, 1, 2, 3, 4]);
    expect(await left()).toEqual([]);
  });

  it('is served although the process of the holder has many waiters', async () => {
    const key = randomUUID();
    const [ours, theirs] = [replica(), replica()];
    const holder = await ours.acquire(key);
    const waiting = theirs.acquire(key, { waitMs: 60_000 });
    await until(async () => (await inLine(key)) === 1);
    let turns = 0;
    const crowd = Array.from({ length: 200 }, () =>
      ours.withLock(key, { waitMs: 60_000 }, async () => {
        turns += 1;
        // The store has time to answer what is asked of it meanwhile.
        await new Promise(setImmediate);
      }),
    );
    await holder.release();
    const lock = await waiting;
    // Fewer on a busy machine, since 200 ms end the turn of a process, too.
    expect(turns).toBeGreaterThan(0);
    expect(turns).toBeLessThanOrEqual(63);
    await lock.release();
    await Promise.all(crowd);
  });

  it('grants no other acquisition before its waiters, also no tryAcquire', async () => {
    const key = randomUUID();
    const [first, second, third] = [replica(), replica(), replica()];
    const holder = await first.acquire(key);
    const waiting = second.acquire(key, { waitMs: 60_000 });
    await until(async () => (await inLine(key)) === 1);
    await holder.release();
    expect(await onceReachable(() => third.tryAcquire(key))).toBeNull();
    expect((await waiting).isValid()).toBe(true);
  });

  it('comes before tryAcquire also when the lease of the holder has expired', async () => {
    const key = randomUUID();
    const backend = redisBackend({ url });
    const claim = { key: `${namespace}:${key}`, holder: randomUUID(), leaseMs: 30_000, instance: '' };
    const waiting = { ...claim, holder: randomUUID(), retryWithinMs: 60_000 };
    const ask = async (request: AcquireRequest) =>
      (await backend.execute({ acquire: [request] }, LIMIT_MS)).acquire[0];
    await ask({ ...claim, leaseMs: 2_000 });
    expect(await ask(waiting)).toMatchObject({ kind: 'taken', isQueued: true });
    await until(async () => (await backend.inspect(claim.key, LIMIT_MS)) === null);
    expect(await ask({ ...claim, holder: randomUUID() })).toMatchObject({ kind: 'taken' });
    expect(await ask(waiting)).toMatchObject({ kind: 'granted' });
    await backend.close();
  });

  it('is left by a waiter that gives up', async () => {
    const key = randomUUID();
    const [first, second, third] = [replica(), replica(), replica()];
    const holder = await first.acquire(key);
    const leaving = new AbortController();
    const refused = expect(second.acquire(key, { signal: leaving.signal })).rejects.toThrow('left');
    await until(async () => (await inLine(key)) === 1);
    leaving.abort(new Error('left'));
    await refused;
    await until(async () => (await inLine(key)) === 0);
    await holder.release();
    expect(await onceReachable(() => third.tryAcquire(key))).not.toBeNull();
  });

  it('continues when the next waiter has died', async () => {
    const key = randomUUID();
    const holder = await replica().acquire(key);
    // Nobody comes for this place when its turn is there.
    const dead = { key: `${namespace}:${key}`, holder: randomUUID(), leaseMs: 30_000, instance: '' };
    const backend = redisBackend({ url });
    await backend.execute({ acquire: [{ ...dead, retryWithinMs: 60_000 }] }, LIMIT_MS);
    await backend.close();
    const waiting = replica().acquire(key, { waitMs: 60_000 });
    await until(async () => (await inLine(key)) === 2);
    await holder.release();
    expect((await waiting).isValid()).toBe(true);
    expect(await left()).toEqual([]);
  });

  it('tells the waiter behind a notified one when to retry', async () => {
    const key = randomUUID();
    const holder = await replica().acquire(key);
    const claim = { key: `${namespace}:${key}`, leaseMs: 30_000, instance: '', retryWithinMs: 60_000 };
    const stand = async (backend: LockBackend) => {
      await backend.execute({ acquire: [{ ...claim, holder: randomUUID() }] }, LIMIT_MS);
      return backend;
    };
    const called = await stand(redisBackend({ url }));
    const heard: ReleaseNotice[] = [];
    const deputy = redisBackend({ url });
    deputy.onReleased!((freed) => heard.push(freed));
    await stand(deputy);
    await until(() => heard.length === 1); // Subscribed.
    await holder.release();
    await until(() => heard.length === 2);
    expect(heard[1]).toEqual({ key: claim.key, inMs: 255 });
    await Promise.all([called.close(), deputy.close()]);
  });

  it('skips a waiter that has not retried in time', async () => {
    const key = randomUUID();
    const holder = await replica().acquire(key);
    const overdue = { key: `${namespace}:${key}`, holder: randomUUID(), leaseMs: 30_000, instance: '' };
    const live = { ...overdue, holder: randomUUID() };
    const backend = redisBackend({ url });
    const ask = async (claim: typeof live, retryWithinMs: number) =>
      (await backend.execute({ acquire: [{ ...claim, retryWithinMs }] }, LIMIT_MS)).acquire[0];
    expect(await ask(overdue, 1)).toMatchObject({ kind: 'taken', isQueued: true });
    await ask(live, 60_000);
    const stoodMs = Date.now();
    await until(() => Date.now() - stoodMs > 1);
    await holder.release();
    // The key is kept for the one behind.
    expect(await ask(live, 60_000)).toMatchObject({ kind: 'granted' });
    await backend.close();
  });

  it('is joined again by a waiter whose place has expired', async () => {
    const key = randomUUID();
    const holder = await replica().acquire(key);
    const waiting = replica().acquire(key, { waitMs: 60_000 });
    await until(async () => (await inLine(key)) === 1);
    await admin.del(`{${namespace}:${key}}:line`, `{${namespace}:${key}}:waiting`);
    await until(async () => (await inLine(key)) === 1);
    await holder.release();
    expect((await waiting).isValid()).toBe(true);
  });

  it('is served when the lock is released by force', async () => {
    const key = randomUUID();
    const [first, second] = [replica(), replica()];
    const { fencingToken } = await first.acquire(key);
    const waiting = second.acquire(key, { waitMs: 60_000 });
    await until(async () => (await inLine(key)) === 1);
    expect(await replica().forceRelease(key, fencingToken)).toBe(true);
    expect((await waiting).fencingToken > fencingToken).toBe(true);
  });

  it('uses one channel for each process, however many keys have waiters', async () => {
    const keys = Array.from({ length: 50 }, () => randomUUID());
    const [first, second] = [replica(), replica()];
    const holders = await Promise.all(keys.map((key) => first.acquire(key)));
    const before = (await admin.pubsub('CHANNELS', 'nestjs-distributed-lock:*')) as string[];
    const waiting = keys.map((key) => second.acquire(key, { waitMs: 60_000 }));
    await until(async () => (await Promise.all(keys.map(inLine))).every((count) => count === 1));
    await until(async () => {
      const channels = (await admin.pubsub('CHANNELS', 'nestjs-distributed-lock:*')) as string[];
      return channels.length === before.length + 1;
    });
    await Promise.all(holders.map((holder) => holder.release()));
    await Promise.all(waiting);
  });
});

describe('calls', () => {
  it('are not needed: without permission for them all waiters are served, and each process warns once', async () => {
    const user = `quiet-${randomUUID()}`;
    await admin.call('ACL', 'SETUSER', user, 'on', 'nopass', '~*', '+@all', 'resetchannels');
    const warning = vi.spyOn(process, 'emitWarning').mockImplementation(() => undefined);
    undo = async () => {
      warning.mockRestore();
      await admin.call('ACL', 'DELUSER', user);
    };
    const quiet = () => redisBackend({ url: url.replace('redis://', `redis://${user}:any@`) });
    const key = randomUUID();
    const served: number[] = [];
    await Promise.all(
      [0, 1, 2].map(async (caller) => {
        const locks = replica(quiet());
        for (let turn = 0; turn < 3; turn += 1) {
          await locks.withLock(key, { waitMs: 60_000 }, () => void served.push(caller));
        }
      }),
    );
    expect(served).toHaveLength(9);
    expect(warning.mock.calls.length).toBeLessThanOrEqual(3); // Once for each of the backends that had to wait.
    expect(String(warning.mock.calls[0]?.[0])).toContain('ACL rule');
  });

  it('are not needed: with their connections cut again and again all waiters are served', async () => {
    const key = randomUUID();
    const cutting = setInterval(() => void admin.call('CLIENT', 'KILL', 'TYPE', 'pubsub'), 300);
    undo = () => clearInterval(cutting);
    const served: number[] = [];
    await Promise.all(
      [0, 1, 2, 3].map(async (caller) => {
        const locks = replica();
        for (let turn = 0; turn < 5; turn += 1) {
          await locks.withLock(key, { waitMs: 60_000 }, () => void served.push(caller));
        }
      }),
    );
    expect(served).toHaveLength(20);
  });

  it('arrive again when their connection is back', async () => {
    const key = randomUUID();
    const holder = await replica().acquire(key);
    const backend = redisBackend({ url });
    const heard: ReleaseNotice[] = [];
    backend.onReleased!((freed) => heard.push(freed));
    const waiting = { key: `${namespace}:${key}`, holder: randomUUID(), leaseMs: 30_000, instance: '' };
    const ask = () => backend.execute({ acquire: [{ ...waiting, retryWithinMs: 60_000 }] }, LIMIT_MS);
    await ask();
    await until(() => heard.length === 1); // Subscribed.
    await admin.call('CLIENT', 'KILL', 'TYPE', 'pubsub');
    await until(() => heard.length === 2); // Subscribed again: calls may have been missed.
    expect(heard).toEqual([{}, {}]);
    await holder.release();
    await until(() => heard.length === 3);
    expect(heard[2]).toEqual({ key: waiting.key, inMs: 0 });
    await backend.close();
  });
});
