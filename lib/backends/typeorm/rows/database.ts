import type { DataSource, EntityManager, EntityMetadata } from 'typeorm';
import { LockConfigError } from '../../../core/errors.js';
import { formatValue } from '../../../core/format.js';
import { SUPPORTED_TYPES } from '../dialects/dialects.js';
import { throwIfTransactionOpen, withAutocommit } from './transactions/autocommit.js';
import { runExclusiveOnRunner, runOutsideOtherTransactions } from './transactions/runner-transactions.js';

/** An entity manager, that of a transaction or another; or what has one: a data source, a repository. */
export type Database = EntityManager | { readonly manager: EntityManager };

/** TypeORM does not export it. */
export type ColumnMetadata = EntityMetadata['columns'][number];

/**
 * Works on the connection of the caller's transaction, or on one to the primary: a replica that lags behind would tell
 * of rows as they were.
 *
 * @throws LockConfigError
 */
export async function onPrimary<T>(
  database: Database,
  work: (manager: EntityManager) => Promise<T>,
): Promise<T> {
  const manager = managerOf(database);
  if (manager.queryRunner) return runExclusiveOnRunner(manager.queryRunner, () => work(manager));
  const runner = dataSourceOf(manager).createQueryRunner('master');
  if (isInProcess(manager)) return runOutsideOtherTransactions(runner, () => work(runner.manager));
  try {
    if (isMysql(manager)) return await withAutocommit(runner, () => work(runner.manager));
    await throwIfTransactionOpen(runner);
    return await work(runner.manager);
  } finally {
    await runner.release();
  }
}

export function dataSourceOf(manager: EntityManager): DataSource {
  // TypeORM 0.3 knows the first name only, and 1 will drop it.
  const { connection, dataSource = connection } = manager as {
    connection: DataSource;
    dataSource?: DataSource;
  };
  return dataSource;
}

export const isMysql = (manager: EntityManager): boolean =>
  ['mysql', 'mariadb'].includes(dataSourceOf(manager).options.type);

/** Whether the caller has a transaction there, as TypeORM knows it. */
export const isInTransaction = (manager: EntityManager): boolean =>
  manager.queryRunner?.isTransactionActive ?? false;

/** The database is in this process, where TypeORM has one connection for all. */
export const isInProcess = (manager: EntityManager): boolean =>
  dataSourceOf(manager).options.type === 'better-sqlite3';

/** A row in a message. Without the values, which may be private. */
export const describeRows = (name: string, where: object): string =>
  `${name} (by ${Object.keys(where).join(', ')})`;

/** For every read: a cache may be on for all (`cache: { alwaysEnabled: true }`), and tells of rows as they were. */
export const UNCACHED = { cache: false } as const;

/**
 * For a read that must see what a write of ours would meet. In a transaction MySQL writes to the newest rows, but reads
 * those of its first read, unless it locks them. Elsewhere a read sees the newest rows, or the write is an error.
 */
export const newestRowsOptions = (manager: EntityManager): { lock?: { mode: 'pessimistic_write' } } =>
  isMysql(manager) && manager.queryRunner?.isTransactionActive ? { lock: { mode: 'pessimistic_write' } } : {};

/** @throws LockConfigError */
export function managerOf(database: Database): EntityManager {
  const manager = (Object(database) as { manager?: EntityManager }).manager ?? (database as EntityManager);
  const type = (Object(manager) as { createQueryBuilder?: unknown }).createQueryBuilder
    ? dataSourceOf(manager).options.type
    : undefined;
  if (!type) {
    throw new LockConfigError(
      `Expected an EntityManager, a DataSource or a Repository, got ${formatValue(database)}.`,
    );
  }
  if (!(SUPPORTED_TYPES as readonly string[]).includes(type)) {
    throw new LockConfigError(
      `Expected a data source of one of the types ${SUPPORTED_TYPES.join(', ')}, got '${type}'.`,
    );
  }
  return manager;
}
