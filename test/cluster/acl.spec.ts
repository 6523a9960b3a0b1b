import { readFileSync } from 'node:fs';
import { Cluster } from 'ioredis';
import { afterEach, describe, expect, it } from 'vitest';
import { redisBackend, redlockBackend } from '../../lib/backends/redis/index.js';
import type { LockBackend } from '../../lib/core/backend.js';
import { LockHandle } from '../../lib/core/leases/lock-handle.js';
import { Elections } from '../../lib/election/elections.js';
import { bareLocks } from '../support/bare-locks.js';
import { askRedis } from '../services/ask-redis.js';
import { RedisCluster } from '../services/redis-cluster.js';
import { startRedisQuorum } from '../services/redis-quorum.js';
import { startRedis } from '../services/redis-server.js';
import { onceReachable } from '../support/once-reachable.js';
import { until } from '../support/until.js';

const LIMIT_MS = 60_000;

const ends: (() => unknown)[] = [];
afterEach(async () => {
  for (const end of ends.splice(0).reverse()) await end();
});

/** The rules as the docs print them: those of every user, and what a feature needs beside them. */
function documentedRules(feature?: string): readonly string[] {
  const docs = readFileSync('docs/backends.md', 'utf8');
  const section = docs.split('### What a user with an ACL needs')[1]!.split('\n## ')[0]!;
  const always = /`(~[^`]+)`/.exec(section)![1]!.split(/\s+/);
  if (feature === undefined) return always;
  const more = new RegExp(`\`(\\+[^\`]+)\`\\s+for\\s+${feature}`).exec(section)![1]!;
  return [...always, ...more.split(/\s+/)];
}

/** A server on which the user `app` may do what the docs say, and nothing else. */
async function allow(url: string, rules: readonly string[]): Promise<void> {
  await askRedis(url, (admin) => admin.call('ACL', 'SETUSER', 'app', 'reset', 'on', '>secret', ...rules));
}

const asApp = (port: number) => ({
  options: { host: '127.0.0.1', port, username: 'app', password: 'secret' },
});

const refusedCommands = (url: string) =>
  askRedis(url, async (admin) => {
    const entries = (await admin.call('ACL', 'LOG')) as unknown[][];
    return entries.map((entry) => entry[entry.indexOf('object') + 1]);
  });

async function single(): Promise<[LockBackend, readonly string[]]> {
  const { url, port, stop } = await startRedis();
  ends.push(stop);
  await allow(url, documentedRules());
  return [redisBackend(asApp(port)), [url]];
}

async function quorum(): Promise<[LockBackend, readonly string[]]> {
  const servers = await startRedisQuorum(3);
  for (const server of servers) ends.push(() => server.stop());
  for (const { url } of servers) await allow(url, documentedRules('a quorum'));
  return [redlockBackend({ clients: servers.map(({ port }) => asApp(port)) }), servers.map(({ url }) => url)];
}

async function cluster(): Promise<[LockBackend, readonly string[]]> {
  const nodes = await RedisCluster.start();
  ends.push(() => nodes.stop());
  const urls = nodes.services.map(({ url }) => url);
  for (const url of urls) await allow(url, documentedRules('a Cluster'));
  const { username, password } = asApp(0).options;
  const client = new Cluster([...nodes.addresses], {
    redisOptions: { username, password },
    lazyConnect: true,
  });
  ends.push(() => client.disconnect());
  return [redisBackend({ client }), urls];
}

describe('a user with the documented ACL', () => {
  it.each([
    ['on one server', single],
    ['in a quorum', quorum],
    ['in a Cluster', cluster],
  ] as const)(
    'may do everything %s',
    async (_, start) => {
      const [backend, urls] = await start();
      const [ours, theirs] = [
        bareLocks({ backend, namespace: 'lock' }),
        bareLocks({ backend, namespace: 'lock' }),
      ];
      ends.push(() => Promise.all([ours.close(), theirs.close()]));
      await ours.check(5_000);

      const held = await ours.acquire('key');
      const waiting = theirs.acquire('key', { waitMs: 30_000 });
      await until(async () => (await theirs.inspect('key'))?.waiting === 1);
      await held.extend(60_000);
      await held.release();
      const next = await waiting;
      expect(next.fencingToken).toBeGreaterThan(held.fencingToken);
      expect(await ours.forceRelease('key', next.fencingToken)).toBe(true);

      const tick = { tickMs: Date.now(), maxEarlyMs: 60_000, staleAfterMs: 600_000 };
      const run = await ours.jobs.claimTick('job', { tick });
      expect(run).toBeInstanceOf(LockHandle);
      await ours.jobs.appendHistory('job', 'ran');
      expect(await ours.jobs.readHistory('job')).toEqual(['ran']);
      await (run as LockHandle).release();

      const permit = await ours.acquire('permits', { permits: 2 });
      const writer = await ours.acquire('mode', { mode: 'write' });
      const second = theirs.acquire('mode', { mode: 'write', waitMs: 30_000 });
      await until(async () => (await theirs.inspect('mode'))?.waiting === 1);
      expect(await onceReachable(() => theirs.tryAcquire('mode', { mode: 'read' }))).toBeNull();
      await writer.release();
      await (await second).release();
      const reader = await theirs.acquire('mode', { mode: 'read' });
      await Promise.all([permit.release(), reader.release()]);

      const [one, other] = [new Elections(ours), new Elections(theirs)];
      const candidates = [one.join('boss'), other.join('boss')];
      one.start();
      other.start();
      await until(() => candidates.some((candidate) => candidate.isLeader()));
      for (const candidate of candidates) expect(await candidate.leader()).not.toBeNull();
      await Promise.all(candidates.map((candidate) => candidate.leave()));

      for (const url of urls) expect(await refusedCommands(url)).toEqual([]);
    },
    LIMIT_MS,
  );

  it(
    'may wait for replicas',
    async () => {
      const { url, port, stop } = await startRedis();
      ends.push(stop);
      const replica = await startRedis({ args: ['--replicaof', '127.0.0.1', String(port)] });
      ends.push(() => replica.stop());
      await allow(url, documentedRules('`minReplicas`'));
      const locks = bareLocks({
        backend: redisBackend({ ...asApp(port), minReplicas: 1 }),
        namespace: 'lock',
      });
      ends.push(() => locks.close());
      await until(() => locks.withLock('key', {}, () => true).catch(() => false));
      expect(await refusedCommands(url)).toEqual([]);
    },
    LIMIT_MS,
  );

  it(
    'uses the database of its connection, never database 0 instead',
    async () => {
      const { url, port, stop } = await startRedis();
      ends.push(stop);
      await allow(url, documentedRules());
      const { options } = asApp(port);
      const locks = bareLocks({
        backend: redisBackend({ options: { ...options, db: 3 } }),
        namespace: 'lock',
      });
      ends.push(() => locks.close());
      const sizes = () =>
        Promise.all([0, 3].map((db) => askRedis(`${url}/${db}`, (admin) => admin.dbsize())));

      await expect(locks.tryAcquire('key')).rejects.toThrow(/NOPERM.*select/i);
      expect(await sizes()).toEqual([0, 0]);
      await allow(url, documentedRules('a database other than 0'));
      await until(() => locks.withLock('key', {}, () => true).catch(() => false));
      expect(await sizes()).toEqual([0, 1]);
    },
    LIMIT_MS,
  );
});
