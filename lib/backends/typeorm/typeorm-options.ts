import type { DataSource, DataSourceOptions } from 'typeorm';
import { LockConfigError } from '../../core/errors.js';
import { formatValue } from '../../core/format.js';
import { OptionErrors, unsetHint, unsetVariableHint } from '../../core/option-errors.js';
import {
  DEFAULT_TOKEN_MEMORY_MS,
  TOKEN_MEMORY_OPTION,
  type TokenMemoryOptions,
  collectTokenMemoryErrors,
} from '../../core/token-memory-options.js';
import type { Dialect } from './dialects/dialect.js';
import { mariadb, mysql } from './dialects/mysql/mysql-dialect.js';
import { postgres } from './dialects/postgres/postgres-dialect.js';
import { sqlite } from './dialects/sqlite/sqlite-dialect.js';
import { DEFAULT_TABLE, type Table, collectTableErrors, tableOf } from './table/table-definition.js';

/** The types of data sources that can keep locks. */
export type SupportedType = 'postgres' | 'mysql' | 'mariadb' | 'better-sqlite3';

const DIALECTS: Readonly<Record<SupportedType, Dialect>> = {
  postgres,
  mysql,
  mariadb,
  'better-sqlite3': sqlite,
};

export const SUPPORTED_TYPES = Object.keys(DIALECTS) as readonly SupportedType[];

export const dialectOf = (type: SupportedType): Dialect => DIALECTS[type];

export interface TypeormBackendOptions extends TokenMemoryOptions {
  /**
   * The database: your data source, initialized or not, or the options of one. The backend opens its own small
   * connection pool. It reads the address, the credentials, TLS and the driver from your data source, and never
   * changes, queries or closes it.
   *
   * With the SQLite database `:memory:`, locks work only within one module of one process, because each connection
   * opens a separate database.
   */
  dataSource: DataSource | DataSourceOptions;
  /**
   * The table that stores the locks. On PostgreSQL also `schema.table`.
   *
   * @default 'distributed_lock'
   */
  table?: string;
  /**
   * Create the table if it is missing. With `false`, run the migration `CreateDistributedLock1700000000000` or let TypeORM
   * synchronize `distributedLockEntity()`. Without the table no lock can be acquired.
   *
   * @default true
   */
  createTable?: boolean;
}

export interface ResolvedTypeormOptions {
  readonly type: SupportedType;
  readonly dialect: Dialect;
  /** Called each time a connection is opened, because the options of a data source may change until then. */
  readonly userOptions: () => DataSourceOptions;
  readonly table: Table;
  readonly createTable: boolean;
  readonly tokenMemoryMs: number;
}

/** @throws LockConfigError that lists all errors */
export function resolveTypeormOptions(options: unknown): ResolvedTypeormOptions {
  throwIfBareDataSource(options);
  const errors = new OptionErrors();
  const known = ['dataSource', 'table', 'createTable', TOKEN_MEMORY_OPTION];
  const given = errors.object('options', options ?? null, known);
  const { dataSource, table, createTable, tokenMemoryMs } = given;
  const isObject = typeof dataSource === 'object' && dataSource !== null;
  const type = isObject ? optionsOf(dataSource as DataSource).type : undefined;
  const missing = formatValue(dataSource) + unsetHint(given, 'dataSource', 'options.dataSource');
  if (isObject && 'manager' in dataSource && !('createQueryRunner' in dataSource))
    errors.add(
      'expected options.dataSource to be a DataSource or its options, got a Repository: inject DataSource',
    );
  else if (isObject) errors.requiredOneOf('options.dataSource.type', type, SUPPORTED_TYPES);
  else errors.add(`expected options.dataSource to be a DataSource or its options, got ${missing}`);
  if (isObject) collectUnsetAddressErrors(errors, dataSource);
  if (isObject && type !== undefined) collectSchemeErrors(errors, dataSource, type);
  collectTableErrors(errors, table, type);
  errors.boolean('options.createTable', createTable);
  collectTokenMemoryErrors(errors, tokenMemoryMs);
  errors.throwIfAny('Wrong options of typeormBackend');
  const userOptions = () => optionsOf(dataSource as DataSource | DataSourceOptions);
  const dialect = dialectOf(type as SupportedType);
  return {
    type: type as SupportedType,
    dialect,
    userOptions,
    table: tableOf((table as string | undefined) ?? DEFAULT_TABLE, userOptions(), dialect),
    createTable: (createTable as boolean | undefined) ?? true,
    tokenMemoryMs: (tokenMemoryMs as number | undefined) ?? DEFAULT_TOKEN_MEMORY_MS,
  };
}

/** Without this check the message would list each property of the data source as an unknown option. */
function throwIfBareDataSource(options: unknown): void {
  if (typeof options !== 'object' || options === null || 'dataSource' in options) return;
  if (!('createQueryRunner' in options) && !('type' in options)) return;
  throw new LockConfigError(
    'createQueryRunner' in options
      ? 'Wrong options of typeormBackend: write typeormBackend({ dataSource }), got a data source without the braces.'
      : 'Wrong options of typeormBackend: write typeormBackend({ dataSource: { type, … } }), got the options of a data source by themselves.',
  );
}

const ADDRESS_OPTIONS = ['url', 'host', 'socketPath', 'replication', 'extra'] as const;

/** With an undefined address the driver would silently connect to localhost. */
function collectUnsetAddressErrors(errors: OptionErrors, dataSource: object): void {
  if ('createQueryRunner' in dataSource) return;
  const given = dataSource as Readonly<Record<string, unknown>>;
  if (given.type === 'better-sqlite3' && 'database' in given && !given.database) {
    // SQLite would open a temporary database that no other process can see.
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

const POSTGRES = ['postgres'];
const MYSQL = ['mysql', 'mariadb'];
const NONE: readonly string[] = [];
/** For which types of data sources a URL with the scheme is meant. Other schemes are not checked. */
const TYPES_BY_SCHEME: Readonly<Record<string, readonly string[]>> = {
  postgres: POSTGRES,
  postgresql: POSTGRES,
  mysql: MYSQL,
  mariadb: MYSQL,
  file: NONE,
  sqlite: NONE,
  libsql: NONE,
  mongodb: NONE,
  prisma: NONE,
  'prisma+postgres': NONE,
  redis: NONE,
  sqlserver: NONE,
};

/** TypeORM does not read the scheme of a URL: it would connect to the server of another database, or to a host that the URL does not name. */
function collectSchemeErrors(errors: OptionErrors, dataSource: object, type: unknown): void {
  const { url } = dataSource as { readonly url?: unknown };
  const scheme = typeof url === 'string' ? url.slice(0, url.indexOf(':')) : '';
  const types = Object.hasOwn(TYPES_BY_SCHEME, scheme) ? TYPES_BY_SCHEME[scheme] : undefined;
  if (!types || types.includes(type as string)) return;
  errors.add(
    `expected options.dataSource.url to be the address of a ${String(type)} database, got one that begins with '${scheme}:'`,
  );
}

/** Checks the shape, not the class: the user's data source may come from another copy of TypeORM. */
const optionsOf = (dataSource: DataSource | DataSourceOptions): DataSourceOptions =>
  'createQueryRunner' in dataSource ? dataSource.options : dataSource;
