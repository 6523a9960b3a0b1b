import type { DataSource, DataSourceOptions } from 'typeorm';
import { Faults, unsetHint } from '../../core/faults.js';
import { shown } from '../../core/shown.js';
import { SUPPORTED_TYPES, type SupportedType } from './dialects.js';
import { findTableFaults } from './table-name.js';

export interface TypeormBackendOptions {
  /**
   * The database: a data source of yours, opened or not, or the options of one. Only its way
   * to the database is used (address, credentials, TLS, driver), for a small pool of our own; it is never changed, queried or
   * closed.
   *
   * An SQLite database `:memory:` is another one for each connection, so locks in it guard one module of one process.
   */
  dataSource: DataSource | DataSourceOptions;
  /**
   * Where the locks are kept; on PostgreSQL also as `schema.table`.
   *
   * @default 'distributed_lock'
   */
  table?: string;
  /**
   * Create the table if it is missing. With `false`, run the migration `CreateDistributedLock1700000000000`, or let
   * TypeORM synchronize `distributedLockEntity()`; until then nothing can be locked.
   *
   * @default true
   */
  createTable?: boolean;
}

export interface Settings {
  readonly type: SupportedType;
  /** Read when a connection is opened, since a data source may be given others until then. */
  readonly usersOptions: () => DataSourceOptions;
  readonly table: string | undefined;
  readonly createTable: boolean;
}

/** @throws LockConfigError with all faults */
export function settingsFrom(options: unknown): Settings {
  const faults = new Faults();
  const given = faults.object('options', options ?? null, ['dataSource', 'table', 'createTable']);
  const { dataSource, table, createTable } = given;
  const isObject = typeof dataSource === 'object' && dataSource !== null;
  const type = isObject ? optionsOf(dataSource as DataSource).type : undefined;
  const missing = shown(dataSource) + unsetHint(given, 'dataSource', 'options.dataSource');
  if (isObject) faults.oneOf('options.dataSource.type', type ?? null, SUPPORTED_TYPES);
  else faults.add(`expected options.dataSource to be a DataSource or its options, got ${missing}`);
  findTableFaults(faults, table, type);
  faults.boolean('options.createTable', createTable);
  faults.throwIfAny('Wrong options of typeormBackend');
  return {
    type: type as SupportedType,
    usersOptions: () => optionsOf(dataSource as DataSource | DataSourceOptions),
    table: table as string | undefined,
    createTable: (createTable as boolean | undefined) ?? true,
  };
}

/** By shape, because the user's data source may come from another copy of TypeORM. */
const optionsOf = (dataSource: DataSource | DataSourceOptions): DataSourceOptions =>
  'createQueryRunner' in dataSource ? dataSource.options : dataSource;
