import { join } from 'node:path';
import { afterAll, describe, expect, it } from '@jest/globals';
import fc from 'fast-check';
import { typeormBackend } from '../../lib/backends/typeorm/index.js';
import type { LockBackend } from '../../lib/core/backend.js';
import { LockConfigError } from '../../lib/core/errors.js';
import type { Lock } from '../../lib/core/lock.js';
import { bareLocks } from '../bare-locks.js';
import {
  type Store,
  backendOn,
  betterSqlite3Store,
  dataSourceOptions,
  mariadbStore,
  postgresStore,
  redisStore,
} from '../stores.js';
import { tempFolder } from '../temp-folder.js';
import { ScriptedBackend } from '../unit/scripted-backend.js';

const SEED = 20_261_120;
const COUNT = 100;

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
const [instance = ''] = nasty(100, 1);

const locksOn = (backend: LockBackend, namespace: string) => bareLocks({ backend, namespace, instance });

const folder = tempFolder();
const sqliteStore = () => betterSqlite3Store(join(folder, 'names.db'));
const databases: readonly (readonly [string, () => Store])[] = [
  ['postgres', postgresStore],
  ['mariadb', mariadbStore],
  ['better-sqlite3', sqliteStore],
];

describe.each([['redis', redisStore] as const, ...databases])('%s', (_, storeOf) => {
  const opened: LockBackend[] = [];
  afterAll(() => Promise.all(opened.map((backend) => backend.close())));

  // Two that meet would wait for each other until the one gives up.
  it('keeps each key of each namespace apart, and tells of it what was given', async () => {
    const backend = backendOn(storeOf());
    opened.push(backend);
    // So that a second run on the same store meets nothing of the first.
    const run = `${Date.now()}`;
    const taken = await Promise.all(
      namespaces.flatMap((namespace) => {
        const locks = locksOn(backend, `${namespace}${run}`);
        return keys.map(async (key) => ({ locks, key, lock: await locks.acquire(key) }));
      }),
    );
    for (const { lock, key } of taken) expect(lock.key).toBe(key);
    const seen = await Promise.all(taken.map(({ locks, key }) => locks.inspect(key)));
    for (const [index, { lock, key }] of taken.entries()) {
      expect(seen[index]).toMatchObject({ key, instance, fencingToken: lock.fencingToken });
    }
    const released = await Promise.all(taken.map(({ lock }) => lock.release()));
    expect(released).toEqual(taken.map(() => true));
  });
});

describe.each(databases)('%s', (type, storeOf) => {
  const opened: LockBackend[] = [];
  afterAll(() => Promise.all(opened.map((backend) => backend.close())));
  const backendWith = (table: string) => typeormBackend({ dataSource: dataSourceOptions(storeOf()), table });

  it('keeps tables apart, whatever they are called', async () => {
    const tables = ['distributed_lock', 'select', 'Order', 'user', '_', 't'.repeat(63)];
    const key = `tables:${Date.now()}`;
    const taken: (Lock | null)[] = [];
    for (const table of tables) {
      const backend = backendWith(table);
      opened.push(backend);
      taken.push(await locksOn(backend, 'lock').tryAcquire(key));
    }
    expect(taken).not.toContain(null);
    for (const lock of taken) await lock?.release();
  });

  it('refuses every other name of a table before it sends anything', () => {
    const refused = nasty(63, 60).filter((name) => !/^[A-Za-z_][A-Za-z0-9_]*$/.test(name));
    const others = ['', 'a b', 'a"b', 'a`b', "a'b", 'a;b', 'a.b.c', '1a', 't'.repeat(64), 'ä'];
    if (type !== 'postgres') others.push('schema.table');
    for (const table of [...refused, ...others]) expect(() => backendWith(table)).toThrow(LockConfigError);
  });
});

it('a key that no store could keep is refused before anything is sent', async () => {
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
