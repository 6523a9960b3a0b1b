import { join } from 'node:path';
import { beforeAll, describe, expect, it } from 'vitest';
import { DataSource } from 'typeorm';
import {
  type Store,
  backendOn,
  betterSqlite3Store,
  dataSourceOptions,
  libsqlStore,
} from '../support/stores.js';
import { tempFolder } from '../support/temp-folder.js';
import { type Outcomes, describeLawOutcomes, lawsOfSettings, startLaws } from './law-suite.js';
import { sqlBench } from './sql-bench.js';

const folder = tempFolder();

const DRIVERS = [
  ['better-sqlite3', () => inWal(betterSqlite3Store(join(folder, 'better-sqlite3.db')))],
  ['libsql', () => inWal(libsqlStore(join(folder, 'libsql.db')))],
] as const;

const inWal = (store: Store): Store =>
  'database' in store ? { database: { ...store.database, enableWAL: true } } : store;

const outcomes = new Map<string, Outcomes>();
beforeAll(() => {
  for (const [name, storeOf] of DRIVERS)
    outcomes.set(name, startLaws(sqlBench(storeOf), { laws: lawsOfSettings }));
});

describe.each(DRIVERS)('by %s,', (name, storeOf) => {
  describeLawOutcomes('a SQLite file with WAL', () => outcomes.get(name)!, lawsOfSettings);

  it('the file of the laws has WAL', async () => {
    const options = { ...dataSourceOptions(storeOf()), enableWAL: undefined };
    const database = await new DataSource(options as ReturnType<typeof dataSourceOptions>).initialize();
    const mode = await database.query<object[]>('PRAGMA journal_mode');
    await database.destroy();
    expect(mode).toEqual([{ journal_mode: 'wal' }]);
  });

  it('WAL cannot be ended while a backend has the file open, so the backend asks for it once', async () => {
    const backend = backendOn(storeOf());
    const stranger = await new DataSource(dataSourceOptions(storeOf())).initialize();
    try {
      await backend.check!(10_000);
      const ended = await stranger.query<object[]>('PRAGMA journal_mode = DELETE').catch(() => 'locked');
      expect([[{ journal_mode: 'wal' }], 'locked']).toContainEqual(ended);
      expect(await stranger.query('PRAGMA journal_mode')).toEqual([{ journal_mode: 'wal' }]);
    } finally {
      await stranger.destroy();
      await backend.close();
    }
  });
});
