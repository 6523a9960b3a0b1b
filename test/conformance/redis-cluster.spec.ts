import { randomUUID } from 'node:crypto';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { Cluster } from 'ioredis';
import { Cluster as Cluster6 } from 'ioredis-6';
import { redisBackend } from '../../lib/backends/redis/index.js';
import { createNotificationClient, createRequestClient } from '../../lib/backends/redis/client-factory.js';
import { CHANNEL_PREFIX } from '../../lib/backends/redis/notifications.js';
import { slotOf } from '../../lib/backends/redis/single/cluster-slots.js';
import type { Locks } from '../../lib/core/locks.js';
import { bareLocks } from '../support/bare-locks.js';
import { describeLaws, lawsOfSettings } from './law-suite.js';
import { askRedis } from '../services/ask-redis.js';
import { RedisCluster } from '../services/redis-cluster.js';
import type { Service } from '../services/service.js';
import { onceReachable } from '../support/once-reachable.js';
import { until } from '../support/until.js';

let cluster: RedisCluster;
let client: Cluster;
let client6: Cluster;
const namespace = randomUUID();
const opened: Locks[] = [];

beforeAll(async () => {
  cluster = await RedisCluster.start();
  client = new Cluster([...cluster.addresses], { lazyConnect: true });
  client6 = new Cluster6([...cluster.addresses], { lazyConnect: true }) as unknown as Cluster;
}, 60_000);
afterEach(() => Promise.all(opened.splice(0).map((locks) => locks.close())));
afterAll(async () => {
  client.disconnect();
  client6.disconnect();
  await cluster.stop();
});

/** As another process would have it. */
function replica(ofClient = client): Locks {
  const locks = bareLocks({ backend: redisBackend({ client: ofClient }), namespace });
  opened.push(locks);
  return locks;
}

const acquisition = (key: string = randomUUID()) => ({
  key,
  holder: randomUUID(),
  leaseMs: 30_000,
  instance: '',
});
const lockKeyOf = (key: string) => `{${namespace}:${key}}:lock`;
const slotOfLock = (key: string) => slotOf(lockKeyOf(key));

/** Another key, in the same slot. */
function inSlotOf(key: string): string {
  for (let number = 0; ; number += 1) {
    if (slotOfLock(`${number}`) === slotOfLock(key)) return `${number}`;
  }
}

describe('on six nodes', () => {
  const forget = async (key: string) => {
    await client.del(`{${key}}:lock`);
  };
  describeLaws('redis cluster', { open: () => redisBackend({ client }), forget }, { laws: lawsOfSettings });

  it('a slot is computed as the servers do', async () => {
    const keys = ['', 'a', 'key', '{a}b', 'x{a}b', '{}a', 'a{}{b}', '{a', 'ключ', 'x}{y}'].concat(
      lockKeyOf('é'),
    );
    const theirs = await Promise.all(keys.map((key) => client.cluster('KEYSLOT', key)));
    expect(keys.map(slotOf)).toEqual(theirs);
  });

  it('a silent node does not delay the results of others', async () => {
    const backend = redisBackend({ client });
    const acquire = Array.from({ length: 12 }, (_, index) => acquisition(`silent-${index}`)); // On all three.
    await backend.execute({ acquire: acquire.map(() => acquisition()) }, 5_000); // Connected.
    const [frozen] = await cluster.primaries();
    frozen!.kill('SIGSTOP');
    const early = new Set<number>();
    const all = backend.execute({ acquire }, 60_000, (_, index) => early.add(index));
    await until(() => early.size > 0); // Of the two other nodes.
    const silent = acquire.filter((_, index) => !early.has(index));
    frozen!.kill('SIGCONT');
    const { acquire: results } = await all;
    expect(silent.length).toBeGreaterThan(0);
    expect(new Set(results.map(({ kind }) => kind))).toEqual(new Set(['granted']));
    await backend.close();
  });

  it('waiters are notified across nodes', async () => {
    const keys = Array.from({ length: 12 }, (_, index) => `call-${index}`);
    const [first, second] = [replica(), replica(client6)];
    const holders = await Promise.all(keys.map((key) => first.acquire(key)));
    const waiting = keys.map((key) => second.acquire(key, { waitMs: 60_000 }));
    await until(async () => {
      const lines = keys.map((key) => client.zcard(`{${namespace}:${key}}:line`));
      return (await Promise.all(lines)).every((count) => count === 1);
    });
    await Promise.all(holders.map((holder) => holder.release()));
    for (const lock of await Promise.all(waiting)) expect(lock.isValid()).toBe(true);
  });

  it('a lock stays with its holder while its slot moves, and waiters are served there', async () => {
    const [first, second] = [replica(), replica(client6)];
    const holder = await first.acquire('moving', { leaseMs: 3_000 });
    const waiting = second.acquire('moving', { waitMs: 60_000 });
    const from = await cluster.ownerOf(slotOfLock('moving'));
    const finishMove = await cluster.beginMove(slotOfLock('moving'));
    const before = holder.remainingMs();
    await until(() => holder.signal.aborted || holder.remainingMs() > before); // Renewed while the slot is half way.
    expect(await onceReachable(() => first.tryAcquire(inSlotOf('moving')))).not.toBeNull();
    await finishMove();
    expect(await cluster.ownerOf(slotOfLock('moving'))).not.toBe(from);
    expect(holder.isValid()).toBe(true);
    await holder.release();
    expect((await waiting).fencingToken > holder.fencingToken).toBe(true);
  }, 60_000);

  it('a client that pipelines by itself gives no pipelines to the connections for locks', () => {
    const pipelining = new Cluster([...cluster.addresses], { lazyConnect: true, enableAutoPipelining: true });
    for (const create of [createRequestClient, createNotificationClient])
      expect(create({ client: pipelining }).options).toMatchObject({ enableAutoPipelining: false });
  });

  it('the connection for notifications leaves a node that stands still', async () => {
    // Otherwise ioredis itself finds out at times, when it reads which nodes there are.
    const quiet = new Cluster([...cluster.addresses], { lazyConnect: true, slotsRefreshInterval: 0 });
    const [ours, theirs] = [redisBackend({ client: quiet }), redisBackend({ client })];
    const key = randomUUID();
    await theirs.execute({ acquire: [acquisition(key)] }, 60_000);
    const waiting = { ...acquisition(key), retryWithinMs: 60_000 };
    await until(async () => {
      const [result] = (await ours.execute({ acquire: [waiting] }, 60_000)).acquire;
      return result?.kind === 'taken' && result.willBeNotified === true;
    });
    const isSubscribedOn = ({ url }: Service) =>
      askRedis(url, async (admin) => (await admin.pubsub('CHANNELS', `${CHANNEL_PREFIX}*`)).length > 0);
    const findSubscribed = async (services: readonly Service[]) => {
      const areSubscribed = await Promise.all(services.map(isSubscribedOn));
      return services.find((_, index) => areSubscribed[index]);
    };
    const first = await findSubscribed(cluster.services);
    first!.kill('SIGSTOP');
    const others = cluster.services.filter((service) => service !== first);
    await until(async () => (await findSubscribed(others)) !== undefined);
    first!.kill('SIGCONT');
    await cluster.waitUntilHealthy();
    await Promise.all([ours.close(), theirs.close()]);
  }, 120_000);

  it('when a primary dies, waiters keep waiting, holders renew or lose their lock, and other locks continue', async () => {
    const [first, second] = [replica(), replica(client6)];
    const holder = await first.acquire('orphaned', { leaseMs: 15_000 });
    const waiting = second.acquire('orphaned', { waitMs: 60_000 });
    await until(async () => (await client.zcard(`{${namespace}:orphaned}:line`)) === 1);
    const owner = await cluster.ownerOf(slotOfLock('orphaned'));
    const before = holder.remainingMs();
    await cluster.kill(owner);
    await cluster.waitUntilHealthy();
    await until(() => holder.signal.aborted || holder.remainingMs() > before);
    await holder.release().catch(() => false);
    expect((await waiting).fencingToken > holder.fencingToken).toBe(true);
  }, 60_000);
});
