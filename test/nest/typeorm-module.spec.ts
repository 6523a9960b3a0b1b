import { join } from 'node:path';
import { expect, it } from 'vitest';
import { ConsoleLogger } from '@nestjs/common';
import { Test } from '@nestjs/testing';
import { TypeOrmModule } from '@nestjs/typeorm';
import { DataSource, type DataSourceOptions } from 'typeorm';
import { typeormBackend } from '../../lib/backends/typeorm/index.js';
import { DistributedLockModule, LockService, LockShutdownError } from '../../lib/index.js';
import { Gate } from '../support/gate.js';
import { dataSourceOptions, libsqlStore } from '../support/stores.js';
import { tempFolder } from '../support/temp-folder.js';

const folder = tempFolder();
const options = dataSourceOptions(libsqlStore(join(folder, 'shop.db')));

it('listed before TypeOrmModule: the waiter is rejected, the holder finishes on its database, and its lock is released', async () => {
  const app = await Test.createTestingModule({
    imports: [
      DistributedLockModule.forRootAsync({
        inject: [DataSource],
        useFactory: (dataSource: DataSource) => ({ backend: typeormBackend({ dataSource }) }),
      }),
      TypeOrmModule.forRoot(options),
    ],
  }).compile();
  await app.init();
  const locks = app.get(LockService);
  const [held, gate] = [new Gate(), new Gate()];
  const holder = locks.withLock('key', async () => {
    held.open();
    await gate.passed;
    return app.get(DataSource).query<unknown>('SELECT 42 AS answer');
  });
  await held.passed;
  const refused = expect(locks.acquire('key')).rejects.toThrow(LockShutdownError);
  const closed = app.close();
  await refused;
  gate.open();
  expect(await holder).toEqual([{ answer: 42 }]);
  await closed;
  expect(app.get(DataSource).isInitialized).toBe(false);

  const database = await new DataSource(options).initialize();
  const rows = await database.query<unknown>('SELECT holder, expires_at FROM distributed_lock');
  await database.destroy();
  expect(rows).toEqual([{ holder: null, expires_at: 0 }]);
});

/** The warnings of an application whose locks are stored in this file. */
async function warningsAtBoot(dataSource: DataSourceOptions): Promise<readonly string[]> {
  const warnings: string[] = [];
  class Warnings extends ConsoleLogger {
    override warn(message: unknown) {
      warnings.push(String(message));
    }
  }
  const app = await Test.createTestingModule({
    imports: [DistributedLockModule.forRoot({ backend: typeormBackend({ dataSource }) })],
  })
    .setLogger(new Warnings({ logLevels: ['warn'] }))
    .compile();
  await app.init();
  expect(await app.get(LockService).withLock('key', () => 'locked')).toBe('locked');
  await app.close();
  return warnings;
}

it('warns at boot of locks in the SQLite file of the application, and says what to do', async () => {
  const shared = dataSourceOptions(libsqlStore(join(folder, 'shared.db')));
  const database = await new DataSource(shared).initialize();
  await database.query('CREATE TABLE stock (n INTEGER)');
  await database.destroy();
  expect(await warningsAtBoot(shared)).toEqual([expect.stringMatching(/app\.locks\.db.*no replica runs/)]);
  const own = dataSourceOptions(libsqlStore(join(folder, 'shared.locks.db')));
  expect(await warningsAtBoot(own)).toEqual([]);
  expect(await warningsAtBoot(own)).toEqual([]);
  expect(await warningsAtBoot({ ...own, database: ':memory:' } as DataSourceOptions)).toEqual([]);
});
