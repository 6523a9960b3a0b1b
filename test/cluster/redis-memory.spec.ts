import { randomUUID } from 'node:crypto';
import { expect, it } from 'vitest';
import { Redis } from 'ioredis';
import { redisBackend } from '../../lib/backends/redis/index.js';
import { LockLostError, LockUnavailableError } from '../../lib/core/errors.js';
import { bareLocks } from '../support/bare-locks.js';
import { startRedis } from '../services/redis-server.js';
import { onceReachable } from '../support/once-reachable.js';
import { until } from '../support/until.js';

const locksOn = (url: string) => bareLocks({ backend: redisBackend({ url }), namespace: randomUUID() });

/** An acquisition of a new key. */
const acquisition = () => ({
  key: `lock:${randomUUID()}`,
  holder: randomUUID(),
  leaseMs: 60_000,
  instance: '',
});

it.each([1, 8])(
  '%i locks are released, together with an acquisition, when memory has run out',
  async (count) => {
    const server = await startRedis();
    const admin = new Redis(server.url);
    const backend = redisBackend({ url: server.url });
    const held = Array.from({ length: count }, acquisition);
    try {
      await backend.execute({ acquire: held }, 1_000);
      await admin.config('SET', 'maxmemory', '1');
      const { release } = await backend.execute({ release: held, acquire: [acquisition()] }, 1_000);
      expect(release).toEqual(held.map(() => ({ kind: 'released' })));
      const holders = await Promise.all(held.map(({ key }) => backend.inspect(key, 1_000)));
      expect(holders).toEqual(held.map(() => null));
    } finally {
      await backend.close();
      await admin.quit();
      await server.stop();
    }
  },
);

it('a lock is released even when the memory of Redis has run out', async () => {
  const server = await startRedis();
  const admin = new Redis(server.url);
  const backend = redisBackend({ url: server.url });
  const claim = { key: `lock:${randomUUID()}`, holder: randomUUID() };
  try {
    const { acquire } = await backend.execute(
      { acquire: [{ ...claim, leaseMs: 60_000, instance: '' }] },
      1_000,
    );
    expect(acquire[0]!.kind).toBe('granted');
    await admin.config('SET', 'maxmemory', '1');
    const { release } = await backend.execute({ release: [claim] }, 1_000);
    expect(release[0]!.kind).toBe('released');
    expect(await backend.inspect(claim.key, 1_000)).toBeNull();
  } finally {
    await backend.close();
    await admin.quit();
    await server.stop();
  }
});

it.each([
  ['under its lease', 60_000],
  ['after its lease', 1],
])(
  'the end of a run is stored %s even when memory has run out, so it is not repeated',
  async (_, leaseMs) => {
    const server = await startRedis();
    const admin = new Redis(server.url);
    const backend = redisBackend({ url: server.url });
    const tick = { tickMs: Date.now(), maxEarlyMs: 60_000, staleAfterMs: 600_000, maxAttempts: 2 };
    const run = { ...acquisition(), leaseMs, tick };
    try {
      expect((await backend.execute({ acquire: [run] }, 1_000)).acquire).toMatchObject([{ kind: 'granted' }]);
      await until(async () => leaseMs > 1 || (await backend.inspect(run.key, 1_000)) === null);
      await admin.config('SET', 'maxmemory', '1');
      const { release } = await backend.execute({ release: [{ ...run, hasEnded: true }] }, 1_000);
      expect(release).toEqual([{ kind: 'released' }]);
      await admin.config('SET', 'maxmemory', '0');
      const retry = { ...run, holder: randomUUID() };
      expect((await backend.execute({ acquire: [retry] }, 1_000)).acquire).toMatchObject([
        { kind: 'refused', reason: 'claimed' },
      ]);
    } finally {
      await backend.close();
      await admin.quit();
      await server.stop();
    }
  },
);

it('a holder learns that its lock was evicted, and the next fencing token is larger', async () => {
  const server = await startRedis({ args: ['--maxmemory-policy', 'allkeys-lru'] });
  const admin = new Redis(server.url);
  const locks = locksOn(server.url);
  try {
    const held = await locks.acquire('key', { leaseMs: 1_500 });
    await admin.config('SET', 'maxmemory', '1');
    await until(async () => (await admin.dbsize()) === 0);
    await admin.config('SET', 'maxmemory', '0');
    const next = await locks.acquire('key', { waitMs: 60_000 });
    expect(next.fencingToken > held.fencingToken).toBe(true);
    expect(held.signal.reason).toBeInstanceOf(LockLostError);
  } finally {
    await locks.close();
    await admin.quit();
    await server.stop();
  }
});

it('when memory has run out and nothing may be evicted, locks are unavailable, and granted again later', async () => {
  const server = await startRedis();
  const admin = new Redis(server.url);
  const locks = locksOn(server.url);
  try {
    await admin.config('SET', 'maxmemory', '1');
    const refused: unknown = await locks.tryAcquire('key').catch((error: unknown) => error);
    expect(refused).toBeInstanceOf(LockUnavailableError);
    expect((refused as Error).message).toContain('OOM');
    await admin.config('SET', 'maxmemory', '0');
    expect(await onceReachable(() => locks.tryAcquire('key'))).not.toBeNull();
  } finally {
    await locks.close();
    await admin.quit();
    await server.stop();
  }
});
