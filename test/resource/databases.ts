import { randomBytes } from 'node:crypto';
import { afterAll, beforeAll } from '@jest/globals';
import { DataSource, type DataSourceOptions } from 'typeorm';
import { type Store, dataSourceOptions, databasesIn } from '../stores.js';
import { tempFolder } from '../temp-folder.js';

export const databases = databasesIn(tempFolder());

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
