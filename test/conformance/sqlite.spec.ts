import { randomUUID } from 'node:crypto';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { DataSource, type DataSourceOptions } from 'typeorm';
import { typeormBackend } from '../../lib/backends/typeorm/index.js';
import { betterSqlite3Store, dataSourceOptions, libsqlStore } from '../support/stores.js';
import { tempFolder } from '../support/temp-folder.js';
import { until } from '../support/until.js';
import { describeLaws, lawsOfSettings } from './law-suite.js';
import { sqlBench } from './sql-bench.js';

const folder = tempFolder();

describeLaws(
  'better-sqlite3',
  sqlBench(() => betterSqlite3Store(join(folder, 'better-sqlite3.db'))),
);
describeLaws(
  'libsql as the driver of better-sqlite3',
  sqlBench(() => libsqlStore(join(folder, 'libsql.db'))),
  { laws: lawsOfSettings },
);

it.each([
  ['better-sqlite3', betterSqlite3Store],
  ['libsql', libsqlStore],
])('who found the file busy keeps nobody from writing, by %s', async (name, storeAt) => {
  const options = dataSourceOptions(storeAt(join(folder, `busy-${name}.db`)));
  const stranger = await new DataSource(options).initialize();
  const backend = typeormBackend({ dataSource: options });
  const request = () => ({ key: 'busy', holder: randomUUID(), leaseMs: 10_000, instance: 'spec' });
  try {
    await backend.execute({ acquire: [request()] }, 5_000);
    await stranger.query('CREATE TABLE stock (left INTEGER)');
    await stranger.query('BEGIN IMMEDIATE');
    await stranger.query('INSERT INTO stock VALUES (1)');
    const { acquire } = await backend.execute({ acquire: [request()] }, 100);
    expect(acquire[0]?.kind).toBe('unknown');
    await backend.readHistory('busy', 100).catch(() => undefined);
    await backend.inspect('busy', 100).catch(() => undefined);
    await stranger.query('COMMIT');
  } finally {
    await backend.close();
    await stranger.destroy();
  }
});

interface Driver {
  new (...args: unknown[]): Database;
}

interface Database {
  readonly inTransaction: boolean;
  prepare(sql: string): Prepared;
}

interface Prepared {
  run(...values: unknown[]): unknown;
}

/** The same driver, which tells before each BEGIN and COMMIT. */
function heard(driver: Driver, tell: (sql: string, database: Database) => void): Driver {
  return function open(...args: unknown[]) {
    const database = new driver(...args);
    const prepare = database.prepare.bind(database);
    database.prepare = (sql) => {
      const statement = prepare(sql);
      const run = statement.run.bind(statement);
      if (/^(BEGIN|COMMIT)/.test(sql)) {
        statement.run = (...values) => {
          tell(sql, database);
          return run(...values);
        };
      }
      return statement;
    };
    return database;
  } as unknown as Driver;
}

const MODES = [
  ['better-sqlite3', 'rollback journal', betterSqlite3Store, false],
  ['better-sqlite3', 'WAL', betterSqlite3Store, true],
  ['libsql', 'rollback journal', libsqlStore, false],
  ['libsql', 'WAL', libsqlStore, true],
] as const;

describe.each(MODES)('by %s with a %s', (name, _, storeAt, enableWAL) => {
  const optionsOf = (file: string, tell: (sql: string, database: Database) => void) => {
    const options = { ...dataSourceOptions(storeAt(join(folder, file))), enableWAL };
    const driver = heard((options as unknown as { driver: Driver }).driver, tell);
    return { options: options as DataSourceOptions, own: { ...options, driver } as DataSourceOptions };
  };
  const request = (key: string) => ({ key, holder: randomUUID(), leaseMs: 10_000, instance: 'spec' });

  it('a transaction ends in the turn in which it began', async () => {
    const seen = { begun: 0, open: 0 };
    const look = (sql: string, database: Database) => {
      if (sql.startsWith('COMMIT')) return;
      seen.begun += 1;
      queueMicrotask(() => (seen.open += Number(database.inTransaction)));
    };
    const backend = typeormBackend({ dataSource: optionsOf(`${name}-${enableWAL}-turn.db`, look).own });
    try {
      const claim = request('k');
      const tick = { tickMs: Date.now(), maxEarlyMs: 60_000, staleAfterMs: 60_000 };
      await backend.execute({ acquire: [claim, { ...request('job'), tick }] }, 10_000);
      await backend.execute({ renew: [claim] }, 10_000);
      await backend.execute({ release: [claim] }, 10_000);
      await backend.appendHistory('k', 'spec', 10_000);
      expect(await backend.readHistory('k', 10_000)).toEqual(['spec']);
      expect(await backend.inspect('k', 10_000)).toBeNull();
    } finally {
      await backend.close();
    }
    expect(seen.begun).toBeGreaterThanOrEqual(7);
    expect(seen.open).toBe(0);
  });

  it('a grant that has to wait for a reader or a writer does not block readers', async () => {
    let commits = 0;
    const { options, own } = optionsOf(`${name}-${enableWAL}-reader.db`, () => (commits += 1));
    const impatient = { ...options, timeout: 0 } as DataSourceOptions;
    const [slow, quick] = [new DataSource(options), new DataSource(impatient)];
    await slow.initialize();
    await quick.initialize();
    await quick.query('PRAGMA busy_timeout = 0');
    const backend = typeormBackend({ dataSource: own });
    try {
      await slow.query('CREATE TABLE stock (n INTEGER)');
      await backend.check(10_000);
      await slow.query(enableWAL ? 'BEGIN IMMEDIATE' : 'BEGIN');
      await slow.query('SELECT n FROM stock');
      commits = 0;
      const granted = backend.execute({ acquire: [request('k')] }, 60_000);
      const wanted = commits + 10;
      await until(async () => {
        await quick.query('SELECT n FROM stock');
        return commits >= wanted;
      });
      await slow.query('COMMIT');
      expect((await granted).acquire[0]?.kind).toBe('granted');
    } finally {
      await backend.close();
      await slow.destroy();
      await quick.destroy();
    }
  });
});
