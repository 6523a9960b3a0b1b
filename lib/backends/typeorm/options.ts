import type { DataSource, DataSourceOptions } from 'typeorm';
import { LockConfigError } from '../../core/errors.js';
import { OptionErrors, unsetHint, unsetVariableHint } from '../../core/option-errors.js';
import { formatValue } from '../../core/format.js';
import { SUPPORTED_TYPES, type SupportedType } from './dialects/dialects.js';
import { collectTableErrors } from './table/table-name.js';

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
  readonly userOptions: () => DataSourceOptions;
  readonly table: string | undefined;
  readonly createTable: boolean;
}

/** @throws LockConfigError with all faults */
export function settingsFrom(options: unknown): Settings {
  throwIfBareDataSource(options);
  const errors = new OptionErrors();
  const given = errors.object('options', options ?? null, ['dataSource', 'table', 'createTable']);
  const { dataSource, table, createTable } = given;
  const isObject = typeof dataSource === 'object' && dataSource !== null;
  const type = isObject ? optionsOf(dataSource as DataSource).type : undefined;
  const missing = formatValue(dataSource) + unsetHint(given, 'dataSource', 'options.dataSource');
  if (isObject) errors.oneOf('options.dataSource.type', type ?? null, SUPPORTED_TYPES);
  else errors.add(`expected options.dataSource to be a DataSource or its options, got ${missing}`);
  if (isObject) collectUnsetAddressErrors(errors, dataSource);
  collectTableErrors(errors, table, type);
  errors.boolean('options.createTable', createTable);
  errors.throwIfAny('Wrong options of typeormBackend');
  return {
    type: type as SupportedType,
    userOptions: () => optionsOf(dataSource as DataSource | DataSourceOptions),
    table: table as string | undefined,
    createTable: (createTable as boolean | undefined) ?? true,
  };
}

/** One line instead of one for each of its properties. */
function throwIfBareDataSource(options: unknown): void {
  if (typeof options !== 'object' || options === null || 'dataSource' in options) return;
  if (!('createQueryRunner' in options) && !('type' in options)) return;
  const kind = 'createQueryRunner' in options ? 'a data source' : 'the options of a data source';
  throw new LockConfigError(
    `Wrong options of typeormBackend: write typeormBackend({ dataSource }), got ${kind} without the braces.`,
  );
}

const ADDRESS_OPTIONS = ['url', 'host', 'socketPath', 'replication', 'extra'] as const;

/** The driver would go to localhost without a word. */
function collectUnsetAddressErrors(errors: OptionErrors, dataSource: object): void {
  if ('createQueryRunner' in dataSource) return;
  const given = dataSource as Readonly<Record<string, unknown>>;
  if (given.type === 'better-sqlite3' && 'database' in given && !given.database) {
    // SQLite would open a database of this process alone.
    errors.add(
      `expected options.dataSource.database to be the path of a file, got ${formatValue(given.database)}` +
        unsetVariableHint('options.dataSource.database'),
    );
  }
  const unset = (['url', 'host'] as const).find((name) => name in given && given[name] === undefined);
  if (!unset || ADDRESS_OPTIONS.some((name) => given[name] !== undefined)) return;
  errors.add(
    `expected options.dataSource.${unset} to be where the database is, got undefined` +
      unsetVariableHint(`options.dataSource.${unset}`),
  );
}

/** By shape, because the user's data source may come from another copy of TypeORM. */
const optionsOf = (dataSource: DataSource | DataSourceOptions): DataSourceOptions =>
  'createQueryRunner' in dataSource ? dataSource.options : dataSource;
