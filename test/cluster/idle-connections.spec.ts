import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, describe, expect, it } from 'vitest';
import type { DataSourceOptions } from 'typeorm';
import { redisBackend, redlockBackend } from '../../lib/backends/redis/index.js';
import { typeormBackend } from '../../lib/backends/typeorm/index.js';
import type { LockBackend } from '../../lib/core/backend.js';
import { LockUnavailableError } from '../../lib/core/errors.js';
import { LockHandle } from '../../lib/core/leases/lock-handle.js';
import type { Lock } from '../../lib/core/lock.js';
import type { Locks } from '../../lib/core/locks.js';
import { bareLocks } from '../support/bare-locks.js';
import { askRedis } from '../services/ask-redis.js';
import { startRedisQuorum, stopAll } from '../services/redis-quorum.js';
import type { Service } from '../services/service.js';
import { serviceUrl } from '../support/environment.js';
import { type SlowProxy, slowProxy } from '../faults/injection/slow-proxy.js';
import { type Store, dataSourceOptions, sqlServers } from '../support/stores.js';
import { until } from '../support/until.js';

const LIMIT_MS = 60_000;
const BUSY_LIMIT_MS = 300_000;
/** Longer than a quorum or a database takes for idle. */
const IDLE_MS = 1_500;

const ends: (() => unknown)[] = [];
afterAll(async () => {
  for (const end of ends.splice(0).reverse()) await end();
  await stopAll((await quorumServers) ?? []);
});

async function proxyTo(port: number): Promise<SlowProxy> {
  const proxy = await slowProxy(port);
  ends.push(() => proxy.close());
  return proxy;
}

const optionsOf = ({ port }: SlowProxy) => ({ options: { port, host: '127.0.0.1' } });

type Start = () => Promise<[LockBackend, readonly SlowProxy[]]>;

async function single(): ReturnType<Start> {
  const proxy = await proxyTo(Number(new URL(serviceUrl('TEST_REDIS_URL')).port));
  return [redisBackend(optionsOf(proxy)), [proxy]];
}

let quorumServers: Promise<readonly Service[]> | undefined;

/** Faults are injected by the proxies, so all specs can have the same servers. */
function startQuorumOnce(): Promise<readonly Service[]> {
  quorumServers ??= startRedisQuorum(3);
  return quorumServers;
}

async function quorum(): ReturnType<Start> {
  const proxies = await Promise.all((await startQuorumOnce()).map(({ port }) => proxyTo(port)));
  return [redlockBackend({ clients: proxies.map(optionsOf) }), proxies];
}

const sql =
  (storeOf: () => Store): Start =>
  async () => {
    const options = dataSourceOptions(storeOf()) as { readonly url: string };
    const url = new URL(options.url);
    const proxy = await proxyTo(Number(url.port));
    url.host = `127.0.0.1:${proxy.port}`;
    return [typeormBackend({ dataSource: { ...options, url: url.href } as DataSourceOptions }), [proxy]];
  };

const claim = (locks: Locks, tickMs: number) =>
  locks.jobs.claimTick('nightly', { tick: { tickMs, maxEarlyMs: 60_000, staleAfterMs: 600_000 } });

describe('a tick is claimed although idle connections have silently gone', () => {
  it.concurrent.each<readonly [string, Start]>([
    ['one server', single],
    ['a quorum', quorum],
    ...sqlServers.map(([name, storeOf]) => [name, sql(storeOf)] as const),
  ])(
    'of %s',
    async (_, start) => {
      const [backend, proxies] = await start();
      const locks = bareLocks({ backend, namespace: randomUUID() });
      ends.push(() => locks.close());
      const tickMs = Date.now();
      const first = await claim(locks, tickMs - 1_000);
      expect(first).toBeInstanceOf(LockHandle);
      await (first as LockHandle).release();
      await sleep(IDLE_MS);
      for (const proxy of proxies) proxy.silence();
      expect(await claim(locks, tickMs)).toBeInstanceOf(LockHandle);
    },
    LIMIT_MS,
  );
});

const undefinedIfUnavailable = (error: unknown) => {
  if (error instanceof LockUnavailableError) return undefined;
  throw error;
};

describe.each<readonly [string, Start]>([
  ['one server', single],
  ['a quorum', quorum],
  ...sqlServers.map(([name, storeOf]) => [name, sql(storeOf)] as const),
])('a lock of %s is granted', (_, start) => {
  const ways = [
    ['acquire', (locks: Locks) => locks.acquire('key')],
    ['tryAcquire', (locks: Locks) => locks.tryAcquire('key')],
  ] as const;
  const faults = [
    ['although idle connections have silently gone', (proxy: SlowProxy) => proxy.silence()],
    ['although idle connections are reset when they are used', (proxy: SlowProxy) => proxy.reset()],
  ] as const;
  it.concurrent.each(
    ways.flatMap(([way, ask]) => faults.map(([fault, begin]) => [way, fault, ask, begin] as const)),
  )(
    'to %s %s, by the first attempt',
    async (way, fault, ask, begin) => {
      const [backend, proxies] = await start();
      const locks = bareLocks({ backend, namespace: randomUUID() });
      ends.push(() => locks.close());
      let lock: Lock | null | undefined;
      // A busy machine needs longer than the second that tryAcquire() has. Then all of it is repeated.
      while (lock === undefined) {
        await (await locks.acquire('key')).release();
        await sleep(IDLE_MS);
        for (const proxy of proxies) begin(proxy);
        lock = await ask(locks).catch(undefinedIfUnavailable);
      }
      expect(lock).toBeInstanceOf(LockHandle);
      expect(await lock!.release()).toBe(true);
    },
    BUSY_LIMIT_MS,
  );
});

it('a connection for notifications whose server has silently gone is replaced', async () => {
  const [url, connectionName] = [serviceUrl('TEST_REDIS_URL'), randomUUID()];
  const proxy = await proxyTo(Number(new URL(url).port));
  const ours = redisBackend({ options: { ...optionsOf(proxy).options, connectionName } });
  const theirs = redisBackend({ url });
  ends.push(() => Promise.all([ours.close(), theirs.close()]));
  const [held, queued] = [randomUUID(), randomUUID()].map((holder) => ({ key: connectionName, holder }));
  const request = { leaseMs: LIMIT_MS, instance: 'spec' };
  await theirs.execute({ acquire: [{ ...request, ...held! }] }, LIMIT_MS);
  const isSubscribed = async () => {
    const waiting = { ...request, ...queued!, retryWithinMs: LIMIT_MS };
    const [result] = (await ours.execute({ acquire: [waiting] }, LIMIT_MS)).acquire;
    return result?.kind === 'taken' && result.willBeNotified === true;
  };
  await until(isSubscribed);
  /** The number that the server gave to each connection with a subscription. */
  const subscribers = async () => {
    const list = await askRedis(url, async (admin) => String(await admin.client('LIST')));
    const own = list.split('\n').filter((line) => line.includes(`name=${connectionName} `));
    return own.filter((line) => line.includes(' sub=1 ')).map((line) => /id=(\d+)/.exec(line)?.[1]);
  };
  const [first] = await subscribers();
  const keys: unknown[] = [];
  ours.onReleased?.(({ key }) => keys.push(key));
  proxy.silence();
  await until(async () => (await subscribers()).some((one) => one !== first));
  await until(isSubscribed);
  await theirs.execute({ release: [held!] }, LIMIT_MS);
  await until(() => keys.includes(connectionName));
}, 120_000);

describe.each<readonly [string, Start]>([
  ['one Redis server', single],
  ...sqlServers.map(([name, storeOf]) => [name, sql(storeOf)] as const),
])('an idle connection to %s', (_, start) => {
  it.concurrent(
    'that answers slowly still serves a request for which no new connection can be had',
    async () => {
      const [backend, [proxy]] = await start();
      ends.push(() => backend.close());
      const acquire = async () => {
        const request = { key: randomUUID(), holder: randomUUID(), leaseMs: 10_000, instance: 'spec' };
        return (await backend.execute({ acquire: [request] }, LIMIT_MS)).acquire[0];
      };
      expect(await acquire()).toMatchObject({ kind: 'granted' });
      await sleep(IDLE_MS);
      proxy!.targetPort = 1; // Nothing listens there.
      proxy!.delayMs = 1_000;
      expect(await acquire()).toMatchObject({ kind: 'granted' });
    },
    LIMIT_MS,
  );
});
