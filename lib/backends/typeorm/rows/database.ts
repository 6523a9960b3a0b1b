import type {
  DataSource,
  EntityManager,
  EntityMetadata,
  EntityTarget,
  ObjectLiteral,
  QueryRunner,
} from 'typeorm';
import { LockConfigError } from '../../../core/errors.js';
import { formatValue } from '../../../core/format.js';
import { SUPPORTED_TYPES } from '../typeorm-options.js';

/** An entity manager, in a transaction or not; or an object that has one: a data source or a repository. */
export type Database = EntityManager | { readonly manager: EntityManager };

/** TypeORM does not export this type. */
export type ColumnMetadata = EntityMetadata['columns'][number];

/** @throws LockConfigError if the data source is not initialized, or has no such entity */
export function entityMetadataOf(
  manager: EntityManager,
  entity: EntityTarget<ObjectLiteral>,
): EntityMetadata {
  const dataSource = dataSourceOf(manager);
  if (!dataSource.isInitialized)
    throw new LockConfigError('Expected an initialized data source: call its initialize() first.');
  if (dataSource.hasMetadata(entity)) return dataSource.getMetadata(entity);
  throw new LockConfigError(
    `Expected an entity of the data source, got ${formatValue(entity)}. Pass the class after the data source, the ` +
      `manager or the repository, and list it in the entities of the data source.`,
  );
}

/** The data source of an entity manager or a query runner. */
export function dataSourceOf(owner: object): DataSource {
  // TypeORM 0.3 has `connection` only, and 1.0 will drop it.
  const { connection, dataSource = connection } = owner as {
    connection: DataSource;
    dataSource?: DataSource;
  };
  return dataSource;
}

const typeOf = (owner: object) => dataSourceOf(owner).options.type;

export const isMysql = (owner: EntityManager | QueryRunner): boolean =>
  ['mysql', 'mariadb'].includes(typeOf(owner));

export const isPostgres = (owner: EntityManager | QueryRunner): boolean => typeOf(owner) === 'postgres';

/** Whether the caller has begun a transaction through TypeORM. Helpers refuse others, see `throwIfBegunByStatement`. */
export const isInTransaction = (manager: EntityManager): boolean =>
  manager.queryRunner?.isTransactionActive ?? false;

/** Whether the database is in this process. TypeORM then has only one connection for the whole data source. */
export const isInProcess = (owner: EntityManager | QueryRunner): boolean =>
  typeOf(owner) === 'better-sqlite3';

/** Describes rows in a message: without the values, which may be private. */
export const describeRows = (name: string, where: object): string =>
  `${name} (by ${Object.keys(where).join(', ')})`;

/** For every read: with `cache: { alwaysEnabled: true }` in the data source, TypeORM would return old rows. */
export const UNCACHED = { cache: false } as const;

/**
 * For a read that must see the rows that a following write would change. In a transaction MySQL writes to the newest rows, but
 * reads rows as of its first read, unless it locks them. In other databases a read sees the newest rows, or the write fails.
 */
export const newestRowsOptions = (manager: EntityManager): { lock?: { mode: 'pessimistic_write' } } =>
  isMysql(manager) && manager.queryRunner?.isTransactionActive ? { lock: { mode: 'pessimistic_write' } } : {};

/** @throws LockConfigError if `database` has no entity manager, or its type is not supported */
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

/**
 * A condition that is always true. On PostgreSQL it makes the commit of its transaction wait for the disk: after a crash the
 * rows must still reject what they rejected before. `remote_apply` waits for more than `on`, so it is kept.
 */
export const durableCommitCondition = (manager: EntityManager): string =>
  isPostgres(manager) ? DURABLE : '1 = 1';

const DURABLE =
  `CASE WHEN current_setting('synchronous_commit') IN ('on', 'remote_apply') THEN true ` +
  `ELSE set_config('synchronous_commit', 'on', true) IS NOT NULL END`;
