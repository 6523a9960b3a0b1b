import { randomUUID } from 'node:crypto';
import { afterAll, afterEach, describe, expect, it } from 'vitest';
import { Redis } from 'ioredis';
import { redisBackend } from '../../lib/backends/redis/index.js';
import type { LockHandle } from '../../lib/core/leases/lock-handle.js';
import type { Locks } from '../../lib/core/locks.js';
import { TIMED } from '../properties/timed-redis.js';
import { bareLocks } from '../support/bare-locks.js';
import { serviceUrl } from '../support/environment.js';
import { until } from '../support/until.js';

const url = serviceUrl('TEST_REDIS_URL');
const redis = new Redis(url);
const opened: Locks[] = [];
afterEach(() => Promise.all(opened.splice(0).map((locks) => locks.close())));
afterAll(() => redis.quit());

/** Locks that remember an unused key for as short a time as is allowed. */
function forgetful(namespace: string): Locks {
  const locks = bareLocks({ backend: redisBackend({ url, tokenMemoryMs: 1_000 }), namespace });
  opened.push(locks);
  return locks;
}

const keysOf = async (namespace: string) => (await redis.keys(`{${namespace}*`)).sort();

const leftAlone = async (key: string) => {
  await until(async () => (await redis.exists(key)) === 0);
};

describe('tokenMemoryMs', () => {
  it('later, no key is left of many different locks', async () => {
    const namespace = randomUUID();
    const locks = forgetful(namespace);
    for (let number = 0; number < 20; number += 1) await (await locks.acquire(`alone ${number}`)).release();
    const many = await Promise.all(
      Array.from({ length: 100 }, (_, number) => locks.acquire(`batch ${number}`)),
    );
    await Promise.all(many.map((lock) => lock.release()));
    expect((await keysOf(namespace)).length).toBeGreaterThan(0);
    await until(async () => (await keysOf(namespace)).length === 0);
  });

  it('later, keys that are held, waited for or have a tick are left', async () => {
    const namespace = randomUUID();
    const locks = forgetful(namespace);
    await locks.acquire('held', { leaseMs: 60_000 });
    await locks.acquire('awaited', { leaseMs: 60_000 });
    const waiter = forgetful(namespace).acquire('awaited');
    waiter.catch(() => undefined); // Rejected when the spec ends.
    await locks.jobs.registerTicks('job');
    await until(async () => (await redis.exists(`{${namespace}:awaited}:line`)) === 1);
    await (await locks.acquire('unused')).release();
    await leftAlone(`{${namespace}:unused}:lock`);
    expect(await keysOf(namespace)).toEqual([
      `{${namespace}/job:job}:lock`,
      `{${namespace}:awaited}:line`,
      `{${namespace}:awaited}:lock`,
      `{${namespace}:awaited}:waiting`,
      `{${namespace}:held}:lock`,
    ]);
  });

  it('a pause has no time limit, whatever happens to its key', async () => {
    const namespace = randomUUID();
    const { jobs } = forgetful(namespace);
    const key = `{${namespace}/job:job}:lock`;
    const tick = { tickMs: Date.now(), maxEarlyMs: 60_000, staleAfterMs: 60_000 };
    const run = (await jobs.claimTick('job', { tick, leaseMs: 60_000 })) as LockHandle;
    await jobs.setPaused('job', true);
    expect(await redis.pttl(key)).toBe(-1);
    await run.extend(90_000);
    expect(await redis.pttl(key)).toBe(-1);
    run.endRun();
    await run.release();
    expect(await redis.pttl(key)).toBe(-1);
    await ((await jobs.claimTick('job', {})) as LockHandle).release();
    expect(await redis.pttl(key)).toBe(-1);
    expect(await keysOf(namespace)).toContain(key);
    await jobs.setPaused('job', false);
    expect(await redis.pttl(key)).toBeGreaterThan(0);
  });

  it('counts from the end of a lease that was not released', async () => {
    const namespace = randomUUID();
    await forgetful(namespace).acquire('key', { leaseMs: 30_000, renew: false });
    const remainingMs = await redis.pttl(`{${namespace}:key}:lock`);
    expect(remainingMs).toBeGreaterThan(30_000);
    expect(remainingMs).toBeLessThanOrEqual(31_000);
  });

  it('counts from a handover in which the notified waiter does not come', async () => {
    const key = `{${randomUUID()}}`;
    const keys = [`${key}:lock`, `${key}:line`, `${key}:waiting`] as const;
    const ask = (...args: string[]) =>
      redis.eval(TIMED, 3, ...keys, `${'9'.repeat(16)} 3 channel`, ...args, nowUs);
    const nowUs = 1_800_000_000_000_000;
    await ask('acquire 100 1 0 instance', 'holder');
    await ask('acquire 100 1 60000 instance', 'waiter');
    await ask('release', 'holder');
    expect(await redis.pttl(keys[0])).toBeGreaterThan(59_000);
    expect(await redis.pttl(keys[0])).toBeLessThanOrEqual(60_000);
  });

  it('later, fencing tokens still grow', async () => {
    const namespace = randomUUID();
    const locks = forgetful(namespace);
    const before = await locks.acquire('key');
    await before.release();
    await leftAlone(`{${namespace}:key}:lock`);
    expect((await locks.acquire('key')).fencingToken).toBeGreaterThan(before.fencingToken);
  });

  it('is longer by as much as tokens are ahead of a clock that was set back', async () => {
    const key = `{${randomUUID()}}`;
    const keys = [`${key}:lock`, `${key}:line`, `${key}:waiting`] as const;
    const nowUs = 1_800_000_000_000_000;
    await redis.eval(
      TIMED,
      3,
      ...keys,
      `${'9'.repeat(16)} 3 channel`,
      'acquire 300000 1 0 instance',
      'holder',
      nowUs,
    );
    const setBackUs = nowUs - 90_000_000;
    expect(await redis.eval(TIMED, 3, ...keys, 'holder', setBackUs)).toEqual([String(setBackUs), 'released']);
    expect(await redis.pttl(keys[0])).toBeGreaterThan(149_000);
    expect(await redis.pttl(keys[0])).toBeLessThanOrEqual(150_000);
  });
});

it('tokenMemoryMs is checked when the backend is made', () => {
  expect(() => redisBackend({ url, tokenMemoryMs: 10 })).toThrow(
    'Wrong redisBackend() options: expected tokenMemoryMs to be a whole number of milliseconds from 1000 to 2147483647, got 10.',
  );
});
