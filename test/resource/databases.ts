import { randomBytes } from 'node:crypto';
import { afterAll, beforeAll } from 'vitest';
import mysql2 from 'mysql2';
import { DataSource, type DataSourceOptions } from 'typeorm';
import {
  type Store,
  dataSourceOptions,
  databasesIn,
  mariadbStore,
  postgresStore,
} from '../support/stores.js';
import { tempFolder } from '../support/temp-folder.js';

export const databases = databasesIn(tempFolder());

type Strict = [name: string, storeOf: () => Store, more: Partial<DataSourceOptions>];

const isolation = (level: string) => ({
  extra: { options: `-c default_transaction_isolation=${level.replace(' ', '\\ ')}` },
});

/** `mysql2`, with a first statement on each new connection. */
export const inSession = (statement: string) => ({
  ...mysql2,
  createPool(options: mysql2.PoolOptions) {
    const pool = mysql2.createPool(options);
    pool.on('connection', (connection) => void connection.query(statement));
    return pool;
  },
});

/** Databases in which a transaction fails if it accesses rows that others have changed. */
export const strictDatabases: Strict[] = [
  ['postgres with REPEATABLE READ', postgresStore, isolation('repeatable read')],
  ['postgres with SERIALIZABLE', postgresStore, isolation('serializable')],
  [
    'mariadb with snapshot isolation',
    () => mariadbStore(),
    { driver: inSession('SET SESSION innodb_snapshot_isolation = ON') },
  ],
];

/** The error of such a database. */
export const CONFLICT = /could not serialize access|Record has changed since last read/;

/** Opens a data source with tables of its own for the tests of this block; they are dropped when it ends. */
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
