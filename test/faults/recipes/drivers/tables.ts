import { DataSource, type DataSourceOptions, getMetadataArgsStorage } from 'typeorm';
import { dataSourceOptions } from '../../../support/stores.js';
import type { RecipeContext } from './driver.js';

/** A data source of an application that has the entities of the recipe. */
export async function openTables(
  { exported, resource }: RecipeContext,
  more: Partial<DataSourceOptions> = {},
): Promise<DataSource> {
  if (!resource || !('database' in resource)) throw new Error('Expected a database for this recipe.');
  const known = new Set(getMetadataArgsStorage().tables.map(({ target }) => target));
  const entities = Object.values(exported).filter((value) => known.has(value as () => void));
  const options = { ...dataSourceOptions(resource.database), entities, entityPrefix: resource.prefix };
  return new DataSource({ ...options, ...more } as DataSourceOptions).initialize();
}

export const entityOf = (database: DataSource): new () => object =>
  database.entityMetadatas[0]!.target as new () => object;

export async function dropTables(database: DataSource): Promise<void> {
  const runner = database.createQueryRunner();
  for (const { tableName } of database.entityMetadatas) await runner.dropTable(tableName, true);
  await runner.release();
  await database.destroy();
}
