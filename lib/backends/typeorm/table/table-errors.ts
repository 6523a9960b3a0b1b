import { LockConfigError } from '../../../core/errors.js';

export const MIGRATION =
  'CreateDistributedLock1700000000000 (for another table name distributedLockMigration({ table }))';

export const missingTableError = (table: string, cause: unknown) =>
  new LockConfigError(
    `Expected the table ${table} for locks, found none. Run the migration ` +
      `${MIGRATION}, or pass createTable: true to typeormBackend.`,
    { cause },
  );

export const otherTableError = (table: string, cause?: unknown) =>
  new LockConfigError(
    `Expected the table ${table} to have the columns and the primary key of distributedLockEntity(), found another table. ` +
      `Pass another table name to typeormBackend, or drop the table if it is an old one of this package, or a copy without ` +
      `its key.`,
    { cause },
  );

export const vanishedError = (table: string, cause: unknown) =>
  new LockConfigError(
    `Expected the table ${table} for locks, which this process has used before, but it has vanished. It was dropped or ` +
      `moved, or the search_path has changed, for example by another client of a connection pooler. It is not created ` +
      `again, because other processes may use it elsewhere. Restore it, or stop all replicas and start them again. Set ` +
      `its schema: typeormBackend({ table: 'schema.table' }).`,
    { cause },
  );
