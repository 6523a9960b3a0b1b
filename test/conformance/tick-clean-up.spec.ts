import { randomUUID } from 'node:crypto';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Redis } from 'ioredis';
import { DataSource } from 'typeorm';
import type { AcquireRequest, LockBackend } from '../../lib/core/backend.js';
import { tickStoreKey } from '../../lib/core/store-key.js';
import { askRedis } from '../services/ask-redis.js';
import { startRedisQuorum, stopAll } from '../services/redis-quorum.js';
import type { Service } from '../services/service.js';
import { serviceUrl } from '../support/environment.js';
import {
  type Store,
  backendOn,
  dataSourceOptions,
  etcdStore,
  libsqlStore,
  mariadbStore,
  postgresStore,
  redisStore,
  zookeeperStore,
} from '../support/stores.js';
import { tempFolder } from '../support/temp-folder.js';
import { until } from '../support/until.js';

const LIMIT_MS = 30_000;
const folder = tempFolder();

/** Runs a tick that has a key of its own, and says that those before it may be forgotten. */
async function run(
  backend: LockBackend,
  job: string,
  tickMs: number,
  isHeld = false,
): Promise<AcquireRequest> {
  const keyOf = (ms: number) => tickStoreKey('spec', job, ms);
  const forget = { afterMs: 60_000, fromKey: keyOf(0), beforeKey: keyOf(tickMs) };
  const request: AcquireRequest = {
    ...{ key: keyOf(tickMs), holder: randomUUID(), leaseMs: 30_000, instance: 'spec' },
    tick: { tickMs, maxEarlyMs: 60_000, staleAfterMs: 60_000, cleanUp: forget },
  };
  const { acquire } = await backend.execute({ acquire: [request] }, LIMIT_MS);
  expect(acquire[0]!.kind).toBe('granted');
  if (!isHeld) await backend.execute({ release: [{ ...request, hasEnded: true }] }, LIMIT_MS);
  return request;
}

const stores: [name: string, storeOf: () => Store][] = [
  ['postgres', postgresStore],
  ['mariadb', () => mariadbStore()],
  ['libsql', () => libsqlStore(join(folder, 'libsql.db'))],
];

describe.each(stores)('the ticks that may overlap, on %s', (_, storeOf) => {
  it('leave no rows when newer ones are granted, except of active runs and of other jobs', async () => {
    const store = storeOf();
    const backend = backendOn(store);
    const [job, now] = [randomUUID(), Date.now()];
    for (const other of [`${job}0`, job.slice(0, -1), `${job}@1`]) await run(backend, other, now - 10);
    await run(backend, job, now - 10, true);
    for (let tick = now - 9; tick <= now; tick += 1) await run(backend, job, tick);
    const stranger = await new DataSource(dataSourceOptions(store)).initialize();
    const keys = async () => {
      const rows = await stranger.query<{ key: string | Buffer }[]>('SELECT * FROM distributed_lock');
      return rows.map(({ key }) => String(key)).filter((key) => key.includes(job.slice(0, -1)));
    };
    const expected = [
      tickStoreKey('spec', job.slice(0, -1), now - 10),
      tickStoreKey('spec', job, now - 10),
      tickStoreKey('spec', job, now),
      tickStoreKey('spec', `${job}0`, now - 10),
      tickStoreKey('spec', `${job}@1`, now - 10),
    ];
    await until(async () => (await keys()).length <= expected.length);
    expect((await keys()).sort()).toEqual(expected.sort());
    await stranger.destroy();
    await backend.close();
  });
});

describe.each<[name: string, storeOf: () => Store]>([
  ...stores,
  ['etcd', etcdStore],
  ['zookeeper', () => zookeeperStore()],
])('the ticks that may overlap, on %s', (_, storeOf) => {
  it('are kept for as long as their dead runs may be retried, although newer ones are granted', async () => {
    const backend = backendOn(storeOf());
    const [job, now] = [randomUUID(), Date.now()];
    const keyOf = (ms: number) => tickStoreKey('spec', job, ms);
    const stateOf = (ms: number) => backend.readTicks(keyOf(ms), LIMIT_MS);
    await run(backend, job, now - 20);
    const dead = await run(backend, job, now - 10, true);
    await backend.execute({ release: [dead] }, LIMIT_MS);
    await run(backend, job, now);
    await until(async () => (await stateOf(now - 20)).claimed === undefined);
    expect((await stateOf(now - 10)).claimed).toEqual({ tickMs: now - 10, attempt: 1 });
    await backend.close();
  });
});

describe.each(stores)('the repair of docs/guarantees.md for a clock that ran ahead, on %s', (_, storeOf) => {
  it('ends a pause at once, and a new pause is kept with a tick, so that the row is not idle', async () => {
    const store = storeOf();
    const backend = backendOn(store);
    const stranger = await new DataSource(dataSourceOptions(store)).initialize();
    const key = `lock/job:${randomUUID()}`;
    const state = () => backend.readTicks(key, LIMIT_MS);
    await backend.setPaused(key, true, LIMIT_MS);
    const column = stranger.driver.escape('key');
    await stranger.query(`UPDATE distributed_lock SET tick = NULL WHERE ${column} = '${key}'`);
    expect(await state()).toMatchObject({ claimed: undefined });
    expect((await state()).isPaused ?? false).toBe(false);
    await backend.setPaused(key, true, LIMIT_MS);
    expect(await state()).toMatchObject({ isPaused: true, claimed: { attempt: 0 } });
    await stranger.destroy();
    await backend.close();
  });
});

describe('the ticks that may overlap, on redis', () => {
  it('expire by themselves, and other ticks are kept', async () => {
    const backend = backendOn(redisStore());
    const redis = new Redis(serviceUrl('TEST_REDIS_URL'));
    const [job, now] = [randomUUID(), Date.now()];
    await run(backend, job, now);
    const leftMs = await redis.pttl(`{${tickStoreKey('spec', job, now)}}:lock`);
    expect(leftMs).toBeGreaterThan(30_000);
    expect(leftMs).toBeLessThanOrEqual(60_000);
    const claim = { key: job, holder: 'one', leaseMs: 1_000, instance: 'spec' };
    const tick = { tickMs: now, maxEarlyMs: 60_000, staleAfterMs: 60_000 };
    await backend.execute({ acquire: [{ ...claim, tick }] }, LIMIT_MS);
    await backend.execute({ renew: [{ ...claim, leaseMs: 2_000 }] }, LIMIT_MS);
    expect(await redis.pttl(`{${job}}:lock`)).toBeGreaterThan(399 * 24 * 3_600_000);
    await redis.quit();
    await backend.close();
  });
});

describe('the ticks that may overlap, in keys that expire', () => {
  const staleAfterMs = 600_000;
  let servers: readonly Service[];
  beforeAll(async () => {
    servers = await startRedisQuorum(3);
  });
  afterAll(() => stopAll(servers));

  const quorumUrls = () => servers.map(({ url }) => url);
  const quorumStore = (): Store => ({ quorum: { at: quorumUrls() } });

  /** For how long a majority keeps the Redis key. */
  async function keptMs(urls: readonly string[], redisKey: string): Promise<number> {
    const all = await Promise.all(urls.map((url) => askRedis(url, (admin) => admin.pttl(redisKey))));
    return all.sort((one, other) => one - other)[Math.floor(all.length / 2)]!;
  }

  it.each([
    ['redis', redisStore, () => [serviceUrl('TEST_REDIS_URL')], 'lock'],
    ['a quorum', quorumStore, quorumUrls, 'vote'],
  ])(
    'are kept until their dead runs may not be retried any more, on %s',
    async (_, storeOf, urlsOf, suffix) => {
      const backend = backendOn(storeOf());
      const tickMs = Date.now();
      const key = tickStoreKey('spec', randomUUID(), tickMs);
      const lock = { key, holder: randomUUID(), leaseMs: 20_000, instance: 'spec' };
      const cleanUp = { afterMs: lock.leaseMs + staleAfterMs, fromKey: key, beforeKey: key };
      const tick = { tickMs, maxEarlyMs: 60_000, staleAfterMs, maxAttempts: 2, cleanUp };
      await backend.execute({ acquire: [{ ...lock, tick }] }, LIMIT_MS);
      // The lease then ends as much later as that of a run which has renewed it for 20 s, then 40 s.
      for (const leaseMs of [40_000, 60_000]) {
        await backend.execute({ renew: [{ ...lock, leaseMs }] }, LIMIT_MS);
        const leftMs = await keptMs(urlsOf(), `{${key}}:${suffix}`);
        const { heldForMs } = await backend.readTicks(key, LIMIT_MS);
        expect(heldForMs).toBeGreaterThan(leaseMs - 20_000);
        expect(leftMs - heldForMs).toBeGreaterThan(staleAfterMs - 1_000);
        expect(leftMs).toBeLessThanOrEqual(staleAfterMs + leaseMs + 20_000);
      }
      await backend.execute({ release: [lock] }, LIMIT_MS);
      expect(await keptMs(urlsOf(), `{${key}}:${suffix}`)).toBeGreaterThan(staleAfterMs);
      expect((await backend.readTicks(key, LIMIT_MS)).claimed).toEqual({ tickMs, attempt: 1 });
      await backend.close();
    },
  );
});
