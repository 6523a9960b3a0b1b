import { randomUUID } from 'node:crypto';
import { afterEach, describe, expect, it } from 'vitest';
import { Cluster, Redis } from 'ioredis';
import { Cluster as Cluster6, Redis as Redis6 } from 'ioredis-6';
import { redisBackend, redlockBackend } from '../../lib/backends/redis/index.js';
import type { LockBackend } from '../../lib/core/backend.js';
import { bareLocks } from '../support/bare-locks.js';
import { askRedis } from '../services/ask-redis.js';
import { RedisCluster } from '../services/redis-cluster.js';
import { startRedisQuorum } from '../services/redis-quorum.js';
import { SentinelGroup } from '../services/redis-sentinel.js';
import { startRedis } from '../services/redis-server.js';
import { until } from '../support/until.js';

const USER = 'app';
/** Longer than it takes to set up a group of servers. */
const LIMIT_MS = 120_000;

const ends: (() => unknown)[] = [];
afterEach(async () => {
  for (const end of ends.splice(0).reverse()) await end();
});

/** From now on the user has this password, and whoever came with another one is gone. */
async function setPassword(urls: readonly string[], password: string): Promise<void> {
  for (const url of urls) {
    await askRedis(url, async (admin) => {
      await admin.call('ACL', 'SETUSER', USER, 'on', 'resetpass', `>${password}`, '~*', '&*', '+@all');
      await admin.call('CLIENT', 'KILL', 'USER', USER, 'SKIPME', 'yes');
    });
  }
}

/** A client of the application, which lives as long as the spec. */
function kept<T extends Redis | Cluster>(client: T): T {
  (client as Redis).on('error', () => undefined);
  ends.push(() => client.disconnect());
  return client;
}

/** Locks, rotates the password, and locks again. */
async function survivesRotation(
  backend: LockBackend,
  { urls, rotate }: { readonly urls: readonly string[]; readonly rotate: (password: string) => void },
): Promise<void> {
  const locks = bareLocks({ backend, namespace: randomUUID() });
  ends.push(() => locks.close());
  const isGranted = () => locks.withLock('key', { waitMs: 500 }, () => true).catch(() => false);
  await until(isGranted);
  for (const password of ['second', 'third']) {
    rotate(password);
    await setPassword(urls, password);
    await until(isGranted);
  }
  // Somebody waits, so that the connection for calls is made anew as well.
  const held = await locks.acquire('key');
  const waiting = locks.acquire('key');
  await held.release();
  expect((await waiting).isValid()).toBe(true);
}

const account = () => ({ username: USER, password: 'first' });

describe('a rotated password is taken from', () => {
  it.each([
    ['ioredis 5', Redis],
    ['ioredis 6', Redis6 as unknown as typeof Redis],
  ])(
    'the client of the application, %s',
    async (_, Client) => {
      const { url, port, stop } = await startRedis();
      ends.push(stop);
      await setPassword([url], 'first');
      const client = kept(new Client({ port, ...account(), lazyConnect: true }));
      const rotate = (password: string) => void (client.options.password = password);
      await survivesRotation(redisBackend({ client }), { urls: [url], rotate });
    },
    LIMIT_MS,
  );

  it(
    'the options that were given',
    async () => {
      const { url, port, stop } = await startRedis();
      ends.push(stop);
      await setPassword([url], 'first');
      const options = { port, ...account() };
      const rotate = (password: string) => void (options.password = password);
      await survivesRotation(redisBackend({ options }), { urls: [url], rotate });
    },
    LIMIT_MS,
  );

  it.each([
    ['ioredis 5', Cluster],
    ['ioredis 6', Cluster6 as unknown as typeof Cluster],
  ])(
    'the Cluster client of the application, %s',
    async (_, Client) => {
      const cluster = await RedisCluster.start();
      ends.push(() => cluster.stop());
      const urls = (await cluster.primaries()).map(({ url }) => url);
      await setPassword(urls, 'first');
      const redisOptions = account();
      const client = kept(new Client([...cluster.addresses], { redisOptions, lazyConnect: true }));
      const rotate = (password: string) => void (client.options.redisOptions = { ...redisOptions, password });
      await survivesRotation(redisBackend({ client }), { urls, rotate });
    },
    LIMIT_MS,
  );

  it(
    'the client of a Sentinel group',
    async () => {
      const group = await SentinelGroup.start();
      ends.push(() => group.stop());
      const { url } = await group.primary();
      await setPassword([url], 'first');
      const { name, sentinels } = group;
      const client = kept(new Redis({ name, sentinels, ...account(), lazyConnect: true }));
      const rotate = (password: string) => void (client.options.password = password);
      await survivesRotation(redisBackend({ client }), { urls: [url], rotate });
    },
    LIMIT_MS,
  );

  it(
    'the clients of a quorum',
    async () => {
      const servers = await startRedisQuorum(3);
      for (const server of servers) ends.push(() => server.stop());
      const urls = servers.map(({ url }) => url);
      await setPassword(urls, 'first');
      const clients = servers.map(({ port }) => kept(new Redis({ port, ...account(), lazyConnect: true })));
      const rotate = (password: string) => {
        for (const client of clients) client.options.password = password;
      };
      await survivesRotation(redlockBackend({ clients }), { urls, rotate });
    },
    LIMIT_MS,
  );
});
