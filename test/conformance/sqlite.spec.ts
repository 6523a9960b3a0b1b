import { randomUUID } from 'node:crypto';
import { join } from 'node:path';
import { expect, it } from '@jest/globals';
import { DataSource } from 'typeorm';
import { typeormBackend } from '../../lib/backends/typeorm/index.js';
import { betterSqlite3Store, dataSourceOptions, libsqlStore } from '../stores.js';
import { tempFolder } from '../temp-folder.js';
import { keepsTheLaws } from './keeps-the-laws.js';
import { sqlBench } from './sql-bench.js';

const folder = tempFolder();

keepsTheLaws(
  'better-sqlite3',
  sqlBench(() => betterSqlite3Store(join(folder, 'better-sqlite3.db'))),
);
keepsTheLaws(
  'libsql as the driver of better-sqlite3',
  sqlBench(() => libsqlStore(join(folder, 'libsql.db'))),
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
    await backend.exchange({ acquire: [request()] }, 5_000);
    await stranger.query('CREATE TABLE stock (left INTEGER)');
    await stranger.query('BEGIN IMMEDIATE');
    await stranger.query('INSERT INTO stock VALUES (1)');
    const { acquire } = await backend.exchange({ acquire: [request()] }, 100);
    expect(acquire[0]?.kind).toBe('unknown');
    await backend.notes('busy', 100).catch(() => undefined);
    await backend.inspect('busy', 100).catch(() => undefined);
    await stranger.query('COMMIT');
  } finally {
    await backend.close();
    await stranger.destroy();
  }
});
