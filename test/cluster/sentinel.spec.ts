import { randomUUID } from 'node:crypto';
import { afterAll, afterEach, beforeAll, expect, it } from 'vitest';
import type { Redis } from 'ioredis';
import { Redis as Redis6 } from 'ioredis-6';
import { redisBackend } from '../../lib/backends/redis/index.js';
import type { LockBackend } from '../../lib/core/backend.js';
import { LockLostError, LockUnavailableError } from '../../lib/core/errors.js';
import type { Locks } from '../../lib/core/locks.js';
import { bareLocks } from '../support/bare-locks.js';
import { askRedis } from '../services/ask-redis.js';
import { SentinelGroup } from '../services/redis-sentinel.js';
import { until } from '../support/until.js';

let group: SentinelGroup;
let client: Redis;
const namespace = randomUUID();
const opened: Locks[] = [];

beforeAll(async () => {
  group = await SentinelGroup.start();
  // This client reads from replicas. Locks must use the primary all the same.
  client = new Redis6({ ...options(), role: 'slave', lazyConnect: true }) as unknown as Redis;
}, 60_000);
afterEach(() => Promise.all(opened.splice(0).map((locks) => locks.close())));
afterAll(async () => {
  client.disconnect();
  await group.stop();
});

const options = () => ({ name: group.name, sentinels: group.sentinels });

/** The locks of one process. */
function locksOn(backend: LockBackend): Locks {
  const locks = bareLocks({ backend, namespace });
  opened.push(locks);
  return locks;
}

it('with minReplicas, a grant counts only if a replica has acknowledged it', async () => {
  const locks = locksOn(redisBackend({ options: options(), minReplicas: 1 }));
  const replicas = await group.replicas();
  for (const replica of replicas) replica.kill('SIGSTOP');
  // A primary that is slow itself is refused for another reason.
  await until(async () => {
    const refused: unknown = await locks.acquire('key', { waitMs: 0 }).catch((error: unknown) => error);
    expect(refused).toBeInstanceOf(LockUnavailableError);
    return (refused as Error).message.includes('only 0 of 1 replicas');
  });
  for (const replica of replicas) replica.kill('SIGCONT');
  await until(async () => (await locks.tryAcquire('key').catch(() => null)) !== null);
});

it('through a failover waiters keep waiting, holders renew or learn of the loss, and fencing tokens grow', async () => {
  const [first, second] = [locksOn(redisBackend({ options: options() })), locksOn(redisBackend({ client }))];
  const kept = await first.acquire('kept', { leaseMs: 20_000 });
  const waiting = second.acquire('kept', { waitMs: 60_000 });
  const primary = await group.primary();
  const line = `{${namespace}:kept}:line`;
  for (const { url } of await group.replicas()) {
    await until(() => askRedis(url, async (replica) => (await replica.zcard(line)) === 1));
    // The replicas miss every write from now on.
    await askRedis(url, (replica) => replica.replicaof('127.0.0.1', 1));
  }
  const forgotten = await first.acquire('forgotten', { leaseMs: 12_000 });
  const before = kept.remainingMs();
  await group.killPrimary();
  await group.waitForFailover(primary);

  let again = await second.tryAcquire('forgotten').catch(() => null);
  await until(async () => (again ??= await second.tryAcquire('forgotten').catch(() => null)) !== null);
  expect(again!.fencingToken > forgotten.fencingToken).toBe(true);
  await until(() => forgotten.signal.aborted);
  expect(forgotten.signal.reason).toBeInstanceOf(LockLostError);

  await until(() => kept.signal.aborted || kept.remainingMs() > before);
  expect(kept.isValid()).toBe(true);
  await kept.release();
  expect((await waiting).fencingToken > kept.fencingToken).toBe(true);
}, 60_000);
