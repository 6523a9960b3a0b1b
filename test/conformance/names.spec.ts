import { randomUUID } from 'node:crypto';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import fc from 'fast-check';
import { Redis } from 'ioredis';
import { DataSource } from 'typeorm';
import { memoryBackend } from '../../lib/backends/memory/index.js';
import { fencedSet, redisBackend } from '../../lib/backends/redis/index.js';
import { typeormBackend } from '../../lib/backends/typeorm/index.js';
import type { LockBackend } from '../../lib/core/backend.js';
import { LockConfigError, LockLostError, LockUnavailableError } from '../../lib/core/errors.js';
import { LockHandle } from '../../lib/core/leases/lock-handle.js';
import type { Lock } from '../../lib/core/lock.js';
import { createAcquireRequest, createAcquisitionId } from '../../lib/testing/laws/law.js';
import { bareLocks } from '../support/bare-locks.js';
import { serviceUrl } from '../support/environment.js';
import { startRedisQuorum, stopAll } from '../services/redis-quorum.js';
import type { Service } from '../services/service.js';
import {
  type Store,
  backendOn,
  betterSqlite3Store,
  etcdStore,
  dataSourceOptions,
  mariadbStore,
  postgresStore,
  redisStore,
  zookeeperStore,
} from '../support/stores.js';
import { onceReachable } from '../support/once-reachable.js';
import { tempFolder } from '../support/temp-folder.js';
import { until } from '../support/until.js';
import { ScriptedBackend } from '../unit/scripted-backend.js';

/** Another one looks at other names. */
const SEED = Number(process.env['NAMES_SEED'] ?? 20_261_120);
const COUNT = 100;
/** Hundreds of locks at once, beside other specs. */
const PATIENT = { waitMs: 25_000 };

/** What means something to SQL, to Lua, to a pattern of Redis, to a URL, or to a terminal. */
const SPECIAL = [
  ...Array.from('\'"`\\;%_*?[]{}()^$.,:/|&#@!-+=<>~ \t\n\r'),
  '\u0001',
  '\u007f',
  '\u0085',
  '\u200b',
  '\u2028',
  '\ufeff',
  'é',
  'e\u0301',
  'ß',
  'İ',
  '😀',
  '}:lock',
  '{lock:a}',
  '${a}',
  '%s',
  '%00',
  '$1',
  '--',
  '/*',
  "'; DROP TABLE distributed_lock; --",
  "' OR '1'='1",
  'NULL',
  "redis.call('FLUSHALL')",
  '$create$',
  ']]',
  'lock:*',
];
const word = fc.oneof(fc.constantFrom(...SPECIAL), fc.string({ unit: 'binary', maxLength: 6 }));
const isStorable = (text: string) => !text.includes('\0') && text.isWellFormed();
const text = (maxLength: number) =>
  fc
    .array(word, { minLength: 1, maxLength: 12 })
    .map((words) => words.join('').slice(0, maxLength).toWellFormed().replaceAll('\0', '0'))
    .filter((joined) => joined.length > 0 && isStorable(joined));
const nasty = (maxLength: number, count: number) => [
  ...new Set(fc.sample(text(maxLength), { seed: SEED + maxLength, numRuns: count })),
];

const keys = [...nasty(512, COUNT), 'k'.repeat(512), `${'k'.repeat(511)}K`, '😀'.repeat(256)];
const namespaces = ['lock', ...nasty(60, 3)];
const instances = nasty(100, namespaces.length);
const jobs = nasty(200, 25);
/** A note is one line. */
const notes = nasty(300, 25).map((note) => JSON.stringify(note));

const locksOn = (backend: LockBackend, namespace: string, instance = 'a spec') =>
  bareLocks({ backend, namespace, instance });

const folder = tempFolder();
const sqliteStore = () => betterSqlite3Store(join(folder, 'names.db'));
const databases: readonly (readonly [string, () => Store])[] = [
  ['postgres', postgresStore],
  ['mariadb', mariadbStore],
  ['better-sqlite3', sqliteStore],
];

const quorum: Service[] = [];
beforeAll(async () => void quorum.push(...(await startRedisQuorum(3))));
afterAll(() => stopAll(quorum));

const backends: readonly (readonly [string, () => LockBackend])[] = [
  ['memory', () => memoryBackend()],
  ['redlock', () => backendOn({ quorum: { at: quorum.map(({ url }) => url) } })],
  ...[
    ...[['redis', redisStore] as const, ['etcd', etcdStore] as const, ['zookeeper', zookeeperStore] as const],
    ...databases,
  ].map(([name, storeOf]) => [name, () => backendOn(storeOf())] as const),
];

describe.each(backends)('%s', (_, open) => {
  const opened: LockBackend[] = [];
  afterAll(() => Promise.all(opened.map((backend) => backend.close())));
  const opens = () => {
    const backend = open();
    opened.push(backend);
    return backend;
  };

  // Two that meet would wait for each other until the one gives up.
  it('keeps each key of each namespace separate, and returns it unchanged', async () => {
    const backend = opens();
    // So that a second run on the same store meets nothing of the first.
    const run = `${Date.now()}`;
    const taken = await Promise.all(
      namespaces.flatMap((namespace, index) => {
        const instance = instances[index];
        const locks = locksOn(backend, `${namespace}${run}`, instance);
        return keys.map(async (key) => ({ locks, key, instance, lock: await locks.acquire(key, PATIENT) }));
      }),
    );
    for (const { lock, key } of taken) expect(lock.key).toBe(key);
    const seen = await Promise.all(taken.map(({ locks, key }) => locks.inspect(key)));
    for (const [index, { lock, key, instance }] of taken.entries()) {
      expect(seen[index]).toMatchObject({ key, instance, fencingToken: lock.fencingToken });
    }
    const released = await Promise.allSettled(taken.map(({ lock }) => lock.release()));
    // One without a reply in two seconds is repeated in the background.
    const failed = released.filter((outcome) =>
      outcome.status === 'fulfilled' ? !outcome.value : !(outcome.reason instanceof LockUnavailableError),
    );
    expect(failed).toEqual([]);
    await Promise.all(taken.map(({ locks, key }) => until(async () => (await locks.inspect(key)) === null)));
  });

  it('a waiter gets its key, whatever the key is called', async () => {
    const backend = opens();
    const namespace = `${namespaces[1]}${Date.now()}`;
    const [holding, waiting] = [locksOn(backend, namespace), locksOn(backend, namespace)];
    const held = await Promise.all(keys.slice(0, 25).map((key) => holding.acquire(key, PATIENT)));
    const waits = held.map(({ key }) => waiting.acquire(key, PATIENT));
    for (const lock of held) await lock.release();
    for (const lock of await Promise.all(waits)) expect(await lock.release()).toBe(true);
  });

  it('keeps the ticks and the history of each job separate', async () => {
    const locks = locksOn(opens(), `${namespaces[2]}${Date.now()}`);
    const tick = { tickMs: Date.now() - 1_000, maxEarlyMs: 500, staleAfterMs: 60_000 };
    for (const [index, job] of jobs.entries()) {
      expect(await locks.jobs.claimTick(job, { tick })).toBeInstanceOf(LockHandle);
      await locks.jobs.appendHistory(job, notes[index]!);
    }
    for (const [index, job] of jobs.entries())
      expect(await locks.jobs.readHistory(job)).toEqual([notes[index]]);
    await locks.close();
  });
});

it('a fenced SET keeps each key separate', async () => {
  const client = new Redis(serviceUrl('TEST_REDIS_URL'), { keyPrefix: `${Date.now()}:` });
  try {
    // Not each has a place beside it in a Cluster.
    const fitting = keys.filter((key) => !/[{}]/.test(key));
    for (const key of fitting) await fencedSet(client, key, `value of ${key}`, 7n);
    for (const key of fitting) {
      await expect(fencedSet(client, key, 'older', 6n)).rejects.toThrow(LockLostError);
      expect(await client.get(key)).toBe(`value of ${key}`);
    }
  } finally {
    client.disconnect();
  }
});

describe.each(databases)('%s', (type, storeOf) => {
  const opened: LockBackend[] = [];
  afterAll(() => Promise.all(opened.map((backend) => backend.close())));
  const backendWith = (table: string) => typeormBackend({ dataSource: dataSourceOptions(storeOf()), table });

  it('keeps tables separate, whatever they are called', async () => {
    const tables = ['distributed_lock', 'select', 'Order', 'user', '_', 't'.repeat(63)];
    const key = `tables:${Date.now()}`;
    const taken: (Lock | null)[] = [];
    for (const table of tables) {
      const backend = backendWith(table);
      opened.push(backend);
      const locks = locksOn(backend, 'lock');
      taken.push(await onceReachable(() => locks.tryAcquire(key)));
    }
    expect(taken).not.toContain(null);
    for (const lock of taken) await lock?.release();
  });

  it('rejects every other table name before it sends anything', () => {
    const refused = nasty(63, 60).filter((name) => !/^[A-Za-z_][A-Za-z0-9_]*$/.test(name));
    const others = ['', 'a b', 'a"b', 'a`b', "a'b", 'a;b', 'a.b.c', '1a', 't'.repeat(64), 'ä'];
    if (type !== 'postgres') others.push('schema.table');
    for (const table of [...refused, ...others]) expect(() => backendWith(table)).toThrow(LockConfigError);
  });
});

it('a schema of PostgreSQL is a name, whatever it is called', async () => {
  const schema = `odd"; ' \\' $create$ ${Date.now()}`;
  const options = dataSourceOptions(postgresStore());
  const admin = await new DataSource(options).initialize();
  const inSql = `"${schema.replaceAll('"', '""')}"`;
  await admin.query(`CREATE SCHEMA ${inSql}`);
  const backend = typeormBackend({ dataSource: { ...options, schema } as typeof options });
  try {
    const lock = await locksOn(backend, 'lock').acquire('key');
    expect(await admin.query(`SELECT count(*)::int AS rows FROM ${inSql}.distributed_lock`)).toEqual([
      { rows: 1 },
    ]);
    expect(await lock.release()).toBe(true);
  } finally {
    await backend.close();
    await admin.query(`DROP SCHEMA ${inSql} CASCADE`);
    await admin.destroy();
  }
});

it('a key that no store could keep is rejected before anything is sent', async () => {
  const backend = new ScriptedBackend();
  const locks = locksOn(backend, 'lock');
  const broken = ['', 'k'.repeat(513), '\0', 'a\0b', '\ud800', 'a\udc00', '\udc00\ud800'];
  for (const key of broken) {
    await expect(locks.acquire(key)).rejects.toThrow(LockConfigError);
    await expect(locks.tryAcquire(key)).rejects.toThrow(LockConfigError);
    await expect(locks.inspect(key)).rejects.toThrow(LockConfigError);
    await expect(locks.forceRelease(key, 1n)).rejects.toThrow(LockConfigError);
  }
  expect(backend.log).toEqual([]);
});

it('the locks of a client are in the database that it has selected', async () => {
  const [client, other] = [
    new Redis(serviceUrl('TEST_REDIS_URL')),
    new Redis(serviceUrl('TEST_REDIS_URL'), { db: 7 }),
  ];
  await client.select(7);
  const [ours, theirs] = [redisBackend({ client }), redisBackend({ client: other })];
  try {
    const key = randomUUID();
    const acquire = async (backend: LockBackend) => {
      const request = createAcquireRequest(createAcquisitionId(key));
      return (await backend.execute({ acquire: [request] }, 5_000)).acquire[0]!.kind;
    };
    expect([await acquire(ours), await acquire(theirs)]).toEqual(['granted', 'taken']);
  } finally {
    await Promise.all([ours.close(), theirs.close(), client.quit(), other.quit()]);
  }
});
