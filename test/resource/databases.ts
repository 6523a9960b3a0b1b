import { randomBytes } from 'node:crypto';
import { join } from 'node:path';
import { afterAll, beforeAll } from '@jest/globals';
import { DataSource, type DataSourceOptions } from 'typeorm';
import {
  type Store,
  betterSqlite3Store,
  dataSourceOptions,
  libsqlStore,
  mariadbStore,
  postgresStore,
} from '../stores.js';
import { tempFolder } from '../temp-folder.js';

const folder = tempFolder();

export const servers: [name: string, storeOf: () => Store][] = [
  ['postgres', postgresStore],
  ['mariadb', () => mariadbStore()],
];

export const databases: [name: string, storeOf: () => Store][] = [
  ...servers,
  ['mysql', () => mariadbStore('mysql')],
  ['better-sqlite3', () => betterSqlite3Store(join(folder, 'better-sqlite3.db'))],
  ['libsql', () => libsqlStore(join(folder, 'libsql.db'))],
];

/** Opens a data source with tables of its own for the tests of this block; they go when it ends. */
export function tablesOn(
  storeOf: () => Store,
  entities: (new () => object)[],
  use: (database: DataSource) => void,
  more: Partial<DataSourceOptions> = {},
): void {
  let database: DataSource;
  beforeAll(async () => {
    const entityPrefix = `spec_${randomBytes(4).toString('hex')}_`;
    const tables = { entities, entityPrefix, synchronize: true, poolSize: 20 };
    database = new DataSource({ ...dataSourceOptions(storeOf()), ...tables, ...more } as DataSourceOptions);
    use(await database.initialize());
  });
  afterAll(async () => {
    const runner = database.createQueryRunner();
    for (const { tableName } of database.entityMetadatas) await runner.dropTable(tableName, true);
    await runner.release();
    await database.destroy();
  });
}
