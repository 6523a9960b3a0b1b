import { randomUUID } from 'node:crypto';
import type { EventEmitter } from 'node:events';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import type { DataSourceOptions } from 'typeorm';
import { typeormBackend } from '../../lib/backends/typeorm/index.js';
import {
  betterSqlite3Store,
  dataSourceOptions,
  libsqlStore,
  mariadbStore,
  postgresStore,
} from '../support/stores.js';
import { tempFolder } from '../support/temp-folder.js';

const LIMIT_MS = 20_000;
const folder = tempFolder();

/** Takes, refuses, renews, tells and gives back, one key and several at once. */
async function locksWork(dataSource: object): Promise<void> {
  const backend = typeormBackend({ dataSource: dataSource as DataSourceOptions });
  const request = (key: string) => ({ key, holder: randomUUID(), leaseMs: 10_000, instance: 'spec' });
  const keys = Array.from({ length: 5 }, () => randomUUID());
  const [one, ...several] = keys.map(request) as [ReturnType<typeof request>];
  const kinds = (answers: readonly { kind: string }[]) => [...new Set(answers.map(({ kind }) => kind))];
  const ask = backend.execute.bind(backend);
  try {
    for (const held of [[one], several]) {
      expect(kinds((await ask({ acquire: held }, LIMIT_MS)).acquire)).toEqual(['granted']);
      const others = held.map(({ key }) => request(key));
      expect(kinds((await ask({ acquire: others }, LIMIT_MS)).acquire)).toEqual(['taken']);
      expect(kinds((await ask({ renew: held }, LIMIT_MS)).renew)).toEqual(['renewed']);
    }
    expect(await backend.inspect(one.key, LIMIT_MS)).toMatchObject({ holder: one.holder, instance: 'spec' });
    const tick = { tickMs: Date.now(), maxEarlyMs: 60_000, staleAfterMs: 60_000 };
    const job = { ...request(randomUUID()), tick };
    expect((await ask({ acquire: [job] }, LIMIT_MS)).acquire[0]).toMatchObject({
      kind: 'granted',
      attempt: 1,
    });
    const late = { ...job, holder: randomUUID() };
    expect((await ask({ acquire: [late] }, LIMIT_MS)).acquire[0]).toMatchObject({ reason: 'claimed' });
    await backend.appendHistory(one.key, 'a note', LIMIT_MS);
    expect(await backend.readHistory(one.key, LIMIT_MS)).toEqual(['a note']);
    for (const held of [[one], several]) {
      expect(kinds((await ask({ release: held }, LIMIT_MS)).release)).toEqual(['released']);
    }
  } finally {
    await backend.close();
  }
}

interface Field {
  readonly type: string;
  string(): string | null;
}

/** As an application writes it that reads BIGINT as numbers. It does not know the binary protocol. */
const typeCast = (field: Field, next: () => unknown) => {
  if (field.type !== 'LONGLONG') return next();
  const text = field.string();
  return text === null ? null : Number(text);
};

describe.each(['mariadb', 'mysql'] as const)('on %s locks do not depend on', (type) => {
  it.each([
    ['typeCast', { typeCast }],
    ['rowsAsArray', { rowsAsArray: true }],
    ['nestTables', { nestTables: '_' }],
    ['bigNumberStrings', { supportBigNumbers: false, bigNumberStrings: false }],
    ['charset', { charset: 'latin1' }],
  ])('%s of the user', (_, extra) => locksWork({ ...dataSourceOptions(mariadbStore(type)), extra }));
});

describe('on postgres locks do not depend on', () => {
  const options = () => dataSourceOptions(postgresStore());

  it.each([
    ['types', { types: { getTypeParser: () => (text: string) => ({ text }) } }],
    ['binary', { binary: true }],
    ['maxUses and maxLifetimeSeconds', { maxUses: 1, maxLifetimeSeconds: 1 }],
    ['the isolation level', { options: '-c default_transaction_isolation=serializable' }],
    ['array_nulls', { options: '-c array_nulls=off' }],
  ])('%s of the user', (_, extra) => locksWork({ ...options(), extra }));

  it('pg-native, where it is installed', () => {
    const pg = createRequire(import.meta.url)('pg') as object;
    const Pool = function () {
      throw new Error('the spec has no libpq');
    };
    return locksWork({ ...options(), driver: { ...pg, native: { Pool } }, nativeDriver: {} });
  });

  it('a verify of the user, which is called for each connection and may refuse it', async () => {
    const seen = new Set<EventEmitter>();
    const verify = (client: EventEmitter, done: (error?: Error) => void) => {
      seen.add(client);
      done();
    };
    await locksWork({ ...options(), extra: { verify } });
    expect(seen.size).toBeGreaterThan(0);
    const refuse = (_: EventEmitter, done: (error?: Error) => void) => done(new Error('not this server'));
    const refused = typeormBackend({
      dataSource: { ...options(), extra: { verify: refuse } },
    });
    await expect(refused.check(LIMIT_MS)).rejects.toThrow('not this server');
    await refused.close();
  });
});

describe.each([
  ['better-sqlite3', betterSqlite3Store],
  ['libsql', libsqlStore],
])('on %s locks do not depend on', (name, storeAt) => {
  const prepared = (file: string, prepareDatabase: (database: Database) => void) =>
    locksWork({ ...dataSourceOptions(storeAt(join(folder, `${name}-${file}.db`))), prepareDatabase });

  it('defaultSafeIntegers of the user', () =>
    prepared('integers', (database) => void database.defaultSafeIntegers(true)));

  it.each([true, false])('synchronous of the user or of the driver, with WAL: %s', async (enableWAL) => {
    let seen: Database | undefined;
    const prepareDatabase = (database: Database) => {
      database.exec('PRAGMA synchronous = OFF');
      seen = database;
    };
    const store = storeAt(join(folder, `${name}-synchronous-${enableWAL}.db`));
    const backend = typeormBackend({
      dataSource: { ...dataSourceOptions(store), enableWAL, prepareDatabase } as never,
    });
    const synchronous = () => seen!.prepare('PRAGMA synchronous').get().synchronous;
    const holder = randomUUID();
    const request = { key: holder, holder, leaseMs: 10_000, instance: 'spec' };
    const tick = { tickMs: Date.now(), maxEarlyMs: 60_000, staleAfterMs: 60_000 };
    const found: unknown[] = [];
    try {
      await backend.execute({ acquire: [request] }, LIMIT_MS);
      found.push(['a lock', synchronous()]);
      const job = { ...request, key: `${holder}:job`, tick };
      await backend.execute({ acquire: [job] }, LIMIT_MS);
      found.push(['a tick', synchronous()]);
      await backend.execute({ release: [request] }, LIMIT_MS);
      found.push(['a release', synchronous()]);
      await backend.execute({ release: [{ ...job, hasEnded: true }] }, LIMIT_MS);
      found.push(['the end of a run', synchronous()]);
    } finally {
      await backend.close();
    }
    const [normal, full] = [1, 2];
    const ofLocks = enableWAL ? normal : full;
    expect(found).toEqual([
      ['a lock', ofLocks],
      ['a tick', full],
      ['a release', ofLocks],
      ['the end of a run', full],
    ]);
  });

  it('query_only and busy_timeout of the user', () =>
    prepared('pragmas', (database) => database.exec('PRAGMA query_only = ON; PRAGMA busy_timeout = 60000')));
});

interface Database {
  defaultSafeIntegers(isOn: boolean): unknown;
  exec(sql: string): void;
  prepare(sql: string): { get(): { synchronous: number } };
}
