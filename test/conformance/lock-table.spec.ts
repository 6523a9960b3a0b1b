import { randomUUID } from 'node:crypto';
import { createRequire } from 'node:module';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { DataSource } from 'typeorm';
import { transactionLock, typeormBackend } from '../../lib/backends/typeorm/index.js';
import { LockConfigError } from '../../lib/core/errors.js';
import { createAcquireRequest, createAcquisitionId } from '../../lib/testing/laws/law.js';
import { dataSourceOptions, mariadbStore, postgresStore } from '../support/stores.js';

const TIMEOUT_MS = 10_000;
const pg = createRequire(import.meta.url)('pg') as { readonly defaults: { binary: boolean } };

/** The server would insert a row for each lock of a key, and grant them all. */
describe.each(['mysql', 'mariadb'] as const)('a table of %s in which keys are not unique', (type) => {
  const options = dataSourceOptions(mariadbStore(type));
  const name = `keys_${randomUUID().slice(0, 8)}`;
  const tables = [
    ['without a primary key', `${name}_none`, ''],
    ['with another primary key', `${name}_other`, '(id BIGINT AUTO_INCREMENT PRIMARY KEY)'],
    ['with a longer primary key', `${name}_longer`, '(PRIMARY KEY (`key`, `holder`))'],
  ] as const;
  const database = new DataSource(options);
  beforeAll(async () => {
    await database.initialize();
    const backend = typeormBackend({ dataSource: options, table: name });
    await backend.check(TIMEOUT_MS);
    await backend.close();
    for (const [, table, columns] of tables)
      await database.query(`CREATE TABLE ${table} ${columns} AS SELECT * FROM ${name}`);
  });
  afterAll(async () => {
    for (const table of [name, ...tables.map(([, other]) => other)])
      await database.query(`DROP TABLE ${table}`);
    await database.destroy();
  });

  it.each(tables)('%s is refused by the backend', async (_, table) => {
    const backend = typeormBackend({ dataSource: options, table });
    try {
      await expect(backend.check(TIMEOUT_MS)).rejects.toThrow(LockConfigError);
      const request = createAcquireRequest(createAcquisitionId('key'));
      const { acquire } = await backend.execute({ acquire: [request] }, TIMEOUT_MS);
      expect(acquire[0]).toMatchObject({ kind: 'unknown', cause: { message: /primary key/ } });
    } finally {
      await backend.close();
    }
  });

  it.each(tables)('%s is refused by transactionLock', async (_, table) => {
    const lock = database.transaction((manager) => transactionLock(manager, 'key', { table }));
    await expect(lock).rejects.toThrow(LockConfigError);
    await expect(lock).rejects.toThrow(/primary key/);
  });
});

it('results of PostgreSQL are read as texts, also if the process asks for binary ones', async () => {
  pg.defaults.binary = true;
  const backend = typeormBackend({ dataSource: dataSourceOptions(postgresStore()) });
  try {
    const acquisitions = [1, 2].map(() => createAcquisitionId(randomUUID()));
    const requests = acquisitions.map((acquisition) => createAcquireRequest(acquisition));
    const { acquire } = await backend.execute({ acquire: requests }, TIMEOUT_MS);
    expect(acquire).toEqual(acquisitions.map(() => expect.objectContaining({ kind: 'granted' }) as unknown));
    const { release } = await backend.execute({ release: acquisitions }, TIMEOUT_MS);
    expect(release).toEqual(acquisitions.map(() => ({ kind: 'released' })));
  } finally {
    pg.defaults.binary = false;
    await backend.close();
  }
});
