import { randomUUID } from 'node:crypto';
import { afterAll, describe, expect, it } from 'vitest';
import fc from 'fast-check';
import { Cluster, Redis } from 'ioredis';
import { tokenKeyOf } from '../../lib/backends/redis/fenced-values.js';
import { fencedSet } from '../../lib/backends/redis/index.js';
import { LockConfigError, LockLostError } from '../../lib/core/errors.js';
import { startRedis } from '../services/redis-server.js';
import { serviceUrl } from '../support/environment.js';
import { until } from '../support/until.js';

/** Beyond the safe integers. */
const HUGE = 2n ** 53n + 1n;

const client = new Redis(serviceUrl('TEST_REDIS_URL'));
afterAll(() => client.quit());

const newKey = () => `spec:${randomUUID()}`;

describe('a fenced SET', () => {
  it('is written with the first token, the same again and a newer one', async () => {
    const key = newKey();
    for (const [value, token] of [
      ['a', 5n],
      ['b', 5n],
      ['c', 7n],
      ['d', 10n],
    ] as const) {
      await fencedSet(client, key, value, token);
      expect(await client.get(key)).toBe(value);
      expect(await client.get(`${key}{${key}}:fencing-token`)).toBe(String(token));
    }
  });

  it('is refused with an older token, and leaves the value as it is', async () => {
    const key = newKey();
    await fencedSet(client, key, 'new', { key: 'lock', fencingToken: 10n });
    const refused: unknown = await fencedSet(client, key, 'old', { key: 'lock', fencingToken: 9n }).catch(
      (error: unknown) => error,
    );
    expect(refused).toBeInstanceOf(LockLostError);
    expect(refused).toMatchObject({ code: 'LOCK_LOST', key: 'lock' });
    expect(String(refused)).toContain('token 9: the newer token 10 has written');
    expect(await client.get(key)).toBe('new');
  });

  it('distinguishes tokens that a number does not', async () => {
    const key = newKey();
    await fencedSet(client, key, 'a', HUGE);
    await expect(fencedSet(client, key, 'b', HUGE - 1n)).rejects.toThrow(`${HUGE} has written`);
    await fencedSet(client, key, 'c', HUGE + 1n);
    expect(await client.get(key)).toBe('c');
  });

  it('stores bytes unchanged', async () => {
    const key = newKey();
    const bytes = Buffer.from([0, 255, 128]);
    await fencedSet(client, key, bytes, 5n);
    expect(await client.getBuffer(key)).toEqual(bytes);
  });

  it('keeps the token for longer than the value', async () => {
    const key = newKey();
    await fencedSet(client, key, 'for ever', 5n);
    expect([await client.pttl(key), await client.pttl(`${key}{${key}}:fencing-token`)]).toEqual([-1, -1]);
    await fencedSet(client, key, 'for a while', 6n, { ttlMs: 60_000 });
    expect(await client.pttl(key)).toBeGreaterThan(0);
    expect(await client.pttl(key)).toBeLessThanOrEqual(60_000);
    expect(await client.pttl(`${key}{${key}}:fencing-token`)).toBeGreaterThan(86_000_000);
    await client.del(key);
    await expect(fencedSet(client, key, 'late', 5n)).rejects.toThrow(LockLostError);
  });

  it('is written even if the server has lost the script', async () => {
    await client.script('FLUSH');
    const key = newKey();
    await fencedSet(client, key, 'a', 5n);
    expect(await client.get(key)).toBe('a');
  });

  it('works with a client that has a prefix', async () => {
    const prefixed = client.duplicate({ keyPrefix: `${newKey()}:` });
    await fencedSet(prefixed, 'a', 'new', 7n);
    await expect(fencedSet(prefixed, 'a', 'old', 6n)).rejects.toThrow(LockLostError);
    expect(await prefixed.get('a')).toBe('new');
    await prefixed.quit();
  });

  it('is not attempted if an argument is wrong', async () => {
    const [key, another] = [newKey(), newKey()];
    await client.set(`${key}{${key}}:fencing-token`, 'something else');
    await client.set(`${another}{${another}}:fencing-token`, '?');
    const attempts = [
      () => fencedSet(client, key, 'a', 5n),
      () => fencedSet(client, another, 'a', 5n),
      () => fencedSet(client, '', 'a', 5n),
      () => fencedSet(client, 'a}b', 'a', 5n),
      () => fencedSet(client, key, 5 as unknown as string, 5n),
      () => fencedSet(client, key, 'a', 5 as unknown as bigint),
      () => fencedSet(client, key, 'a', 5n, { ttlMs: 0 }),
      () => fencedSet(client.pipeline() as unknown as Redis, key, 'a', 5n),
    ];
    for (const attempt of attempts) await expect(attempt()).rejects.toThrow(LockConfigError);
    expect(await client.exists(key, another)).toBe(0);
  });
});

describe('in a Cluster', () => {
  it('the token lies on the slot of its key', async () => {
    const server = await startRedis({
      args: ['--cluster-enabled', 'yes', '--cluster-announce-ip', '127.0.0.1'],
    });
    const admin = new Redis(server.url);
    try {
      await admin.cluster('ADDSLOTSRANGE', 0, 16_383);
      await until(async () => (await admin.cluster('INFO')).includes('cluster_state:ok'));
      for (const keyPrefix of ['', 'shop:', '{shop}:']) {
        const cluster = new Cluster([{ host: '127.0.0.1', port: server.port }], { keyPrefix });
        for (const key of ['stock', 'stock:{lamp}', '{lamp}']) {
          await fencedSet(cluster, key, 'new', 7n);
          await expect(fencedSet(cluster, key, 'old', 6n)).rejects.toThrow(LockLostError);
          expect(await cluster.get(key)).toBe('new');
        }
        cluster.disconnect();
      }
      const texts = fc.string({ unit: fc.constantFrom('{', '}', 'a', ':'), maxLength: 6 });
      await fc.assert(
        fc.asyncProperty(texts, texts, async (keyPrefix, key) => {
          let tokenKey;
          try {
            tokenKey = tokenKeyOf(key, keyPrefix);
          } catch (error) {
            expect(error).toBeInstanceOf(LockConfigError);
            return;
          }
          const slotOf = (text: string) => admin.cluster('KEYSLOT', text);
          expect(await slotOf(keyPrefix + tokenKey)).toBe(await slotOf(keyPrefix + key));
        }),
        { numRuns: 500 },
      );
    } finally {
      await admin.quit();
      await server.stop();
    }
  });
});
