import { randomUUID } from 'node:crypto';
import { afterAll, afterEach, describe, expect, it, jest } from '@jest/globals';
import { Redis } from 'ioredis';
import { redisBackend } from '../../lib/backends/redis/redis-backend.js';
import type { LockBackend } from '../../lib/core/backend.js';
import { Events } from '../../lib/core/events.js';
import { Locks } from '../../lib/core/locks.js';
import { BUILT_IN_LOCK_OPTIONS } from '../../lib/core/options.js';
import { serviceUrl } from '../environment.js';
import { until } from '../until.js';

const url = serviceUrl('TEST_REDIS_URL');
const admin = new Redis(url);
const namespace = randomUUID();
const opened: Locks[] = [];
const closeAll = () => Promise.all(opened.splice(0).map((locks) => locks.close()));
afterEach(closeAll);
afterAll(() => admin.quit());

/** As another process would have it. */
function process(backend: LockBackend = redisBackend({ url })): Locks {
  const instance = 'a spec';
  const events = new Events({ namespace, instance });
  const locks = new Locks({ backend, namespace, instance, defaults: BUILT_IN_LOCK_OPTIONS, events });
  opened.push(locks);
  return locks;
}

const inLine = (key: string) => admin.zcard(`{${namespace}:${key}}:line`);
const left = () => admin.keys(`{${namespace}:*}:[lw][ia]*`);

describe('the line of a key', () => {
  it('serves processes in the order in which they came', async () => {
    const key = randomUUID();
    const holder = await process().acquire(key);
    const served: number[] = [];
    const others: Promise<void>[] = [];
    for (const place of [0, 1, 2, 3, 4]) {
      const lock = process().acquire(key, { waitMs: 60_000 });
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

  it('lets nobody in before those who wait, also not who asks just once', async () => {
    const key = randomUUID();
    const [first, second, third] = [process(), process(), process()];
    const holder = await first.acquire(key, { leaseMs: 1_000, renew: false });
    const waiting = second.acquire(key, { waitMs: 60_000 });
    await until(async () => (await inLine(key)) === 1);
    await holder.release();
    expect(await third.tryAcquire(key)).toBeNull();
    expect((await waiting).isValid()).toBe(true);
  });

  it('is left by who does not wait any longer', async () => {
    const key = randomUUID();
    const [first, second, third] = [process(), process(), process()];
    const holder = await first.acquire(key);
    const leaving = new AbortController();
    const left = expect(second.acquire(key, { signal: leaving.signal })).rejects.toThrow('left');
    await until(async () => (await inLine(key)) === 1);
    leaving.abort(new Error('left'));
    await left;
    await until(async () => (await inLine(key)) === 0);
    await holder.release();
    expect(await third.tryAcquire(key)).not.toBeNull();
  });

  it('goes on when the next in line has died', async () => {
    const key = randomUUID();
    const holder = await process().acquire(key);
    // Nobody comes for this place when its turn is there.
    const dead = { key: `${namespace}:${key}`, holder: randomUUID(), leaseMs: 30_000, instance: '' };
    const backend = redisBackend({ url });
    await backend.exchange({ acquire: [{ ...dead, againWithinMs: 60_000 }] }, 1_000);
    await backend.close();
    const waiting = process().acquire(key, { waitMs: 60_000 });
    await until(async () => (await inLine(key)) === 2);
    await holder.release();
    expect((await waiting).isValid()).toBe(true);
    expect(await left()).toEqual([]);
  });

  it('sends away who has not asked again in time', async () => {
    const key = randomUUID();
    const holder = await process().acquire(key);
    const dead = { key: `${namespace}:${key}`, holder: randomUUID(), leaseMs: 30_000, instance: '' };
    const backend = redisBackend({ url });
    const { acquire } = await backend.exchange({ acquire: [{ ...dead, againWithinMs: 1 }] }, 1_000);
    expect(acquire[0]).toMatchObject({ kind: 'taken', isInLine: true });
    await backend.close();
    await until(async () => (await inLine(key)) === 0);
    await holder.release();
    expect(await process().tryAcquire(key)).not.toBeNull();
  });

  it('is stood in again by who was away for so long that his place was given up', async () => {
    const key = randomUUID();
    const holder = await process().acquire(key);
    const waiting = process().acquire(key, { waitMs: 60_000 });
    await until(async () => (await inLine(key)) === 1);
    await admin.del(`{${namespace}:${key}}:line`, `{${namespace}:${key}}:waiting`);
    await until(async () => (await inLine(key)) === 1);
    await holder.release();
    expect((await waiting).isValid()).toBe(true);
  });

  it('is served when the lock is released by force', async () => {
    const key = randomUUID();
    const [first, second] = [process(), process()];
    const { fencingToken } = await first.acquire(key);
    const waiting = second.acquire(key, { waitMs: 60_000 });
    await until(async () => (await inLine(key)) === 1);
    expect(await process().forceRelease(key, fencingToken)).toBe(true);
    expect((await waiting).fencingToken > fencingToken).toBe(true);
  });

  it('costs one connection and one channel for each process, however many keys are waited for', async () => {
    const keys = Array.from({ length: 50 }, () => randomUUID());
    const [first, second] = [process(), process()];
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
  it('are not needed: without the right to them everybody is served, and it is told once', async () => {
    const user = `quiet-${randomUUID()}`;
    await admin.call('ACL', 'SETUSER', user, 'on', 'nopass', '~*', '+@all', 'resetchannels');
    const warning = jest.spyOn(globalThis.process, 'emitWarning').mockImplementation(() => undefined);
    const quiet = () => redisBackend({ url: url.replace('redis://', `redis://${user}:any@`) });
    const key = randomUUID();
    const served: number[] = [];
    await Promise.all(
      [0, 1, 2].map(async (caller) => {
        const locks = process(quiet());
        for (let turn = 0; turn < 3; turn += 1) {
          await locks.withLock(key, { waitMs: 60_000 }, () => void served.push(caller));
        }
      }),
    );
    expect(served).toHaveLength(9);
    await until(() => warning.mock.calls.length >= 2);
    expect(String(warning.mock.calls[0]![0])).toContain('ACL rule');
    warning.mockRestore();
    await closeAll();
    await admin.call('ACL', 'DELUSER', user);
  });

  it('are not needed: with their connections cut again and again everybody is served', async () => {
    const key = randomUUID();
    const cutting = setInterval(() => void admin.call('CLIENT', 'KILL', 'TYPE', 'pubsub'), 300);
    const served: number[] = [];
    await Promise.all(
      [0, 1, 2, 3].map(async (caller) => {
        const locks = process();
        for (let turn = 0; turn < 5; turn += 1) {
          await locks.withLock(key, { waitMs: 60_000 }, () => void served.push(caller));
        }
      }),
    );
    clearInterval(cutting);
    expect(served).toHaveLength(20);
  });

  it('come again when their connection is back', async () => {
    const key = randomUUID();
    const [first, second] = [process(), process()];
    const holder = await first.acquire(key);
    const waiting = second.acquire(key, { waitMs: 60_000 });
    await until(async () => (await inLine(key)) === 1);
    const channels = () => admin.pubsub('CHANNELS', 'nestjs-distributed-lock:*') as Promise<string[]>;
    await until(async () => (await channels()).length > 0);
    const before = await channels();
    await admin.call('CLIENT', 'KILL', 'TYPE', 'pubsub');
    await until(
      async () => before.every((_, index) => index >= 0) && (await channels()).length >= before.length,
    );
    await holder.release();
    expect((await waiting).isValid()).toBe(true);
  });
});
