import { randomUUID } from 'node:crypto';
import { afterAll, describe, expect, it } from 'vitest';
import { Redis } from 'ioredis';
import { fencedGet, fencedSet } from '../../lib/backends/redis/index.js';
import { LockConfigError, LockLostError } from '../../lib/core/errors.js';
import { serviceUrl } from '../support/environment.js';
import { ORDERS, runInOrder } from './interleavings.js';

const HUGE = 2n ** 53n + 1n;
const DAY_MS = 86_400_000;

const client = new Redis(serviceUrl('TEST_REDIS_URL'));
afterAll(() => client.quit());

const newKey = () => `spec:${randomUUID()}`;
const tokenKey = (key: string) => `${key}{${key}}:fencing-token`;
const isRefusal = (error: unknown) => error instanceof LockLostError;

function holder(key: string, token: bigint) {
  let count = NaN;
  return {
    async read() {
      count = Number(await fencedGet(client, key, token));
    },
    async write() {
      await fencedSet(client, key, String(count + 1), token);
      return true;
    },
  };
}

describe('a fenced GET', () => {
  it.each(ORDERS)('loses no update where %s, %s, %s, %s', async (...order) => {
    const key = newKey();
    const accepted = await runInOrder(order, { old: holder(key, 5n), new: holder(key, 6n) }, isRefusal);
    expect(accepted).toBeGreaterThan(0);
    expect(await client.get(key)).toBe(String(accepted));
  });

  it('returns the value, or null, and rejects an older token from then on', async () => {
    const key = newKey();
    expect(await fencedGet(client, key, HUGE)).toBeNull();
    await expect(fencedSet(client, key, 'late', HUGE - 1n)).rejects.toThrow(LockLostError);
    await expect(fencedGet(client, key, { key: 'lock', fencingToken: HUGE - 1n })).rejects.toMatchObject({
      code: 'LOCK_LOST',
      key: 'lock',
    });
    await fencedSet(client, key, 'value', HUGE);
    expect(await fencedGet(client, key, HUGE + 1n)).toBe('value');
    await fencedSet(client, key, '', HUGE + 1n);
    expect(await fencedGet(client, key, HUGE + 1n)).toBe('');
  });

  it('keeps the token for longer than the value, and never shorter than it would have stayed', async () => {
    const lastsMs = (key: string) => client.pttl(tokenKey(key));
    const [none, stays, goes] = [newKey(), newKey(), newKey()];
    await fencedGet(client, none, 5n);
    expect(await lastsMs(none)).toBeGreaterThan(DAY_MS - 60_000);
    expect(await lastsMs(none)).toBeLessThanOrEqual(DAY_MS);
    await fencedSet(client, stays, 'for ever', 5n);
    await fencedGet(client, stays, 6n);
    expect(await lastsMs(stays)).toBe(-1);
    await fencedSet(client, goes, 'for a while', 5n, { ttlMs: DAY_MS });
    await fencedGet(client, goes, 6n);
    expect(await lastsMs(goes)).toBeGreaterThan(2 * DAY_MS - 60_000);
    await client.del(goes);
    await fencedGet(client, goes, 7n);
    expect(await lastsMs(goes)).toBeGreaterThan(2 * DAY_MS - 60_000);
  });

  it('works with a client that has a prefix', async () => {
    const prefixed = client.duplicate({ keyPrefix: `${newKey()}:` });
    await fencedSet(prefixed, 'a', 'value', 5n);
    expect(await fencedGet(prefixed, 'a', 7n)).toBe('value');
    await expect(fencedSet(prefixed, 'a', 'old', 6n)).rejects.toThrow(LockLostError);
    await prefixed.quit();
  });

  it.each(['', '{tag}'])(
    'rejects an older token also of a client with another prefix, for a key with "%s"',
    async (tag) => {
      const prefix = `${newKey()}${tag}:`;
      const prefixed = client.duplicate({ keyPrefix: prefix });
      await fencedGet(prefixed, 'a', 5n);
      expect(await fencedGet(client, `${prefix}a`, 7n)).toBeNull();
      await expect(fencedSet(prefixed, 'a', 'old', 5n)).rejects.toThrow(LockLostError);
      await prefixed.quit();
    },
  );

  it('is not attempted with a lock that is no longer valid', async () => {
    const key = newKey();
    const lock = { key: 'lock', fencingToken: 5n, isValid: () => false };
    await expect(fencedGet(client, key, lock)).rejects.toThrow(LockLostError);
    await expect(fencedSet(client, key, 'a', lock)).rejects.toThrow(LockLostError);
    expect(await client.exists(key, tokenKey(key))).toBe(0);
  });

  it('is not attempted if an argument is wrong', async () => {
    const [key, list] = [newKey(), newKey()];
    await client.set(tokenKey(key), 'something else');
    const attempts = [
      () => fencedGet(client, key, 5n),
      () => fencedGet(client, '', 5n),
      () => fencedGet(client, 'a}b', 5n),
      () => fencedGet(client, newKey(), 5 as unknown as bigint),
      () => fencedGet(client.pipeline() as unknown as Redis, newKey(), 5n),
    ];
    for (const attempt of attempts) await expect(attempt()).rejects.toThrow(LockConfigError);
    await client.rpush(list, 'item');
    await expect(fencedGet(client, list, 5n)).rejects.toThrow('WRONGTYPE');
    expect(await client.exists(tokenKey(list))).toBe(0);
  });
});
