import { createHash } from 'node:crypto';
import type { DataSource, EntityManager, QueryRunner } from 'typeorm';
import { LockConfigError } from '../../../core/errors.js';
import { checkKey } from '../../../core/key.js';
import { transactionStoreKey } from '../../../core/store-key.js';
import { currentLock } from '../../../core/lock-context.js';
import { OptionErrors } from '../../../core/option-errors.js';
import { BUILT_IN_LOCK_OPTIONS } from '../../../core/options.js';
import { lockRowSql } from '../dialects/mysql/mysql-sql.js';
import { throwIfKeyIsNotUnique } from '../table/primary-key.js';
import { DEFAULT_TABLE, collectTableErrors, tableOf } from '../table/table-definition.js';
import { missingTableError, otherTableError } from '../table/table-errors.js';
import { type SupportedType, dialectOf } from '../typeorm-options.js';
import { type Database, dataSourceOf, isInProcess, isInTransaction, isMysql, managerOf } from './database.js';
import { contentionError, toLockError } from './lock-errors.js';
import { isolationLevelOf } from './transactions/isolation-level.js';
import { recordTransactionOf } from './transactions/recorded-transaction.js';
import { guardOf } from './transactions/runner-guard.js';
import { takeWriteLock } from './transactions/write-lock.js';
import { withWaitLimit } from './wait-limit.js';

export interface TransactionLockOptions {
  /**
   * How long to wait for the key, in ms. 0 tries once, `Infinity` waits forever. MySQL and MariaDB count whole seconds,
   * rounded up, and the shortest wait of MySQL is one second.
   *
   * @default 10_000
   */
  waitMs?: number;
  /**
   * The table of the locks, as in the options of `typeormBackend`. On MySQL and MariaDB it stores a row for each key. On
   * PostgreSQL only its name counts: the same key with another name is another lock.
   *
   * @default 'distributed_lock'
   */
  table?: string;
}

/**
 * Locks a key until your transaction ends. COMMIT and ROLLBACK release it; no row of yours is needed. It has no lease and no
 * token. Other transactions that lock the same key wait.
 *
 * ```ts
 * await dataSource.transaction(async (manager) => {
 *   await transactionLock(manager, `invoice:${month}`, { waitMs: 2_000 });
 *   await manager.insert(Invoice, { month, number: (await manager.countBy(Invoice, { month })) + 1 });
 * });
 * ```
 *
 * Lock before you read: a transaction may not see what was committed while it waited, if it has read before. It shares no
 * key with `withLock`. All applications that use the same database and table share the keys. To avoid deadlocks, lock
 * several keys in the same order everywhere. In a nested transaction, the lock ends earlier if that is rolled back.
 *
 * - PostgreSQL: `pg_advisory_xact_lock` with 64 bits of a SHA-256 hash of table and key. Two keys with the same hash
 *   exclude each other, which costs time and nothing else. REPEATABLE READ and SERIALIZABLE are refused, because the
 *   transaction would read what was committed before it waited.
 * - MySQL, MariaDB: a row of the table of the locks, which must exist. Processes that use `typeormBackend` with this table
 *   remove the row after its `tokenMemoryMs`.
 * - SQLite: the write lock of the file, whatever the key.
 *
 * @throws LockTimeoutError if another transaction still has the key after `waitMs`; roll the transaction back
 * @throws LockUnavailableError if the database has ended the transaction because of a concurrent one, with the `cause`
 * @throws LockConfigError if the manager is not in a transaction, an argument is wrong, or the table is missing
 */
export async function transactionLock(
  manager: Database,
  key: string,
  options: TransactionLockOptions = {},
): Promise<void> {
  checkKey(key);
  const { waitMs, table } = resolveOptions(options);
  const inner = managerOf(manager);
  if (!isInTransaction(inner)) {
    throw new LockConfigError(
      `Expected a manager that is in a transaction, got one that is not: the lock of "${key}" would end at once. Call ` +
        `transactionLock() in dataSource.transaction(), with the manager that it passes on.`,
      { key },
    );
  }
  recordTransactionOf(inner, currentLock());
  const failed = { name: `"${key}"`, key, waitMs };
  await guardOf(inner.queryRunner as QueryRunner)
    .run(() => lockKey(inner, key, { waitMs, table }))
    .catch((cause: unknown) => {
      throw toLockError(failed, cause);
    });
}

type Resolved = Required<TransactionLockOptions>;

/** @throws LockConfigError that lists all errors */
function resolveOptions(options: TransactionLockOptions): Resolved {
  const errors = new OptionErrors();
  const { waitMs, table } = errors.object('options', options, ['waitMs', 'table']);
  errors.durationMs('options.waitMs', waitMs, { max: Infinity });
  collectTableErrors(errors, table, 'postgres');
  errors.throwIfAny('Wrong options of transactionLock');
  return {
    waitMs: options.waitMs ?? BUILT_IN_LOCK_OPTIONS.waitMs,
    table: options.table ?? DEFAULT_TABLE,
  };
}

function lockKey(manager: EntityManager, key: string, options: Resolved): Promise<void> {
  if (isInProcess(manager)) return takeWriteLock(manager.queryRunner as QueryRunner, options);
  return isMysql(manager) ? lockTableRow(manager, key, options) : lockAdvisory(manager, key, options);
}

/** @throws LockConfigError if the table is missing, or another one */
async function lockTableRow(manager: EntityManager, key: string, { waitMs, table }: Resolved): Promise<void> {
  const { options } = dataSourceOf(manager);
  const dialect = dialectOf(options.type as SupportedType);
  const { inSql } = tableOf(table, options, dialect);
  // Bytes, because text is sent in the connection's character set, which may lack some characters.
  const bytes = Buffer.from(transactionStoreKey(key), 'utf8');
  try {
    await withWaitLimit(manager, waitMs, () => manager.query(lockRowSql(inSql), [bytes]));
    // After the wait: on MySQL 8, SHOW INDEX is a read, which decides what the transaction sees from then on.
    await checkKeyOnce(manager, inSql);
  } catch (cause) {
    const kind = dialect.classifyError(cause);
    if (kind === 'no table') throw missingTableError(inSql, cause);
    throw kind === 'no column' ? otherTableError(inSql, cause) : cause;
  }
}

const checkedTables = new WeakMap<DataSource, Set<string>>();

/** @throws LockConfigError if several rows of the table could have one key */
async function checkKeyOnce(manager: EntityManager, tableInSql: string): Promise<void> {
  const dataSource = dataSourceOf(manager);
  const checked = checkedTables.get(dataSource) ?? new Set();
  if (checked.has(tableInSql)) return;
  await throwIfKeyIsNotUnique((sql) => manager.query(sql), tableInSql);
  checkedTables.set(dataSource, checked.add(tableInSql));
}

async function lockAdvisory(manager: EntityManager, key: string, { waitMs, table }: Resolved): Promise<void> {
  await throwIfSnapshotIsOld(manager, key);
  const hash = [advisoryKey(table, key)];
  if (waitMs > 0) {
    await withWaitLimit(manager, waitMs, () => manager.query('SELECT pg_advisory_xact_lock($1)', hash));
    return;
  }
  // A row instead of a boolean, because an application may parse booleans in its own way.
  const rows = await manager.query<unknown[]>('SELECT 1 WHERE pg_try_advisory_xact_lock($1)', hash);
  if (rows.length === 0) throw contentionError({ name: `"${key}"`, key, waitMs });
}

/** Signed, as PostgreSQL's BIGINT is. */
const advisoryKey = (table: string, key: string): string =>
  createHash('sha256')
    .update(`nestjs-distributed-lock\0${table}\0${key}`)
    .digest()
    .readBigInt64BE()
    .toString();

/** With these levels, all statements of a transaction read the rows as of the first one. */
const ONE_SNAPSHOT: ReadonlySet<string> = new Set(['repeatable read', 'serializable']);

/**
 * The statement takes the snapshot of the transaction before it waits, so later reads would miss what the last holder has
 * committed. SERIALIZABLE may commit them all the same, as a transaction that came before that of the last holder.
 *
 * @throws LockConfigError
 */
async function throwIfSnapshotIsOld(manager: EntityManager, key: string): Promise<void> {
  const level = await isolationLevelOf(manager);
  if (!ONE_SNAPSHOT.has(level)) return;
  throw new LockConfigError(
    `Expected a transaction with READ COMMITTED to lock "${key}", got ${level.toUpperCase()}, which would not read what the ` +
      `last transaction with the key has committed. Use dataSource.transaction('READ COMMITTED', …).`,
    { key },
  );
}
