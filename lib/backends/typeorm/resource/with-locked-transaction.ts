import type { DataSource, EntityManager } from 'typeorm';
import { LockConfigError, LockLostError } from '../../../core/errors.js';
import type { Lock } from '../../../core/lock.js';
import { locksOf } from '../../../core/locks-of.js';
import type { AcquireOptions } from '../../../core/options.js';
import { shown } from '../../../core/shown.js';
import { managerOf } from './database.js';

export interface LockedTransactionOptions extends AcquireOptions {
  /**
   * The `LockService` to take the lock from. Needed where the data source is neither a provider of the application nor that
   * of its `typeormBackend`, and to use a named module.
   */
  locks?: WithLock;
}

type Work<T> = (manager: EntityManager, lock: Lock) => T | Promise<T>;

/** What is needed of a lock service. */
interface WithLock {
  withLock<T>(key: string, options: AcquireOptions, work: (lock: Lock) => Promise<T>): Promise<T>;
}

/**
 * Takes the lock, runs the work in a transaction, commits, and only then releases the lock. So the next holder sees what was
 * written, which it does not where a transaction is opened before the lock.
 *
 * ```ts
 * await withLockedTransaction(dataSource, `product:${id}`, async (manager, lock) => {
 *   const product = await fencedFindOne(manager, Product, { id }, lock);
 *   if (!product) throw new NotFoundException();
 *   await fencedUpdate(manager, Product, { id }, { stock: product.stock - 1 }, lock);
 * });
 * ```
 *
 * If the lock is lost before COMMIT is sent, the transaction is rolled back. A process that is stopped at that very moment may
 * still commit late: read and write through the fenced helpers, which refuse that. Options are those of `withLock`. The lock
 * is that of the module without a name, or of the only one; otherwise give `locks`. On SQLite TypeORM has one connection, so
 * transactions that run at the same time end up in one: this refuses to begin while another is open.
 *
 * @throws what `withLock` and the work throw, after a rollback; errors of the database
 * @throws LockLostError if the lock was lost; the message says if the transaction was committed all the same
 * @throws LockConfigError if no lock service knows the data source, or a transaction is open already
 */
export async function withLockedTransaction<T>(
  dataSource: DataSource,
  key: string,
  work: Work<T>,
): Promise<T>;
export async function withLockedTransaction<T>(
  dataSource: DataSource,
  key: string,
  options: LockedTransactionOptions,
  work: Work<T>,
): Promise<T>;
export async function withLockedTransaction<T>(
  dataSource: DataSource,
  key: string,
  ...rest: [Work<T>] | [LockedTransactionOptions, Work<T>]
): Promise<T> {
  const [options, work] = rest.length === 1 ? [{}, rest[0]] : rest;
  const { locks = locksOf(dataSource), ...acquireOptions } = options;
  if (typeof work !== 'function') {
    throw new LockConfigError(`Expected the work to be a function, got ${shown(work)}.`, { key });
  }
  refuseOpenTransaction(dataSource, key);
  if (!locks) {
    throw new LockConfigError(
      `Expected a data source of an application with one DistributedLockModule without a name, got one that none, or ` +
        `several, know. Give { locks: lockService } as an option.`,
      { key },
    );
  }
  let isCommitted = false as boolean;
  const inTransaction = async (lock: Lock): Promise<T> => {
    refuseOpenTransaction(dataSource, key);
    const value = await dataSource.transaction(async (manager) => {
      const worked = await work(manager, lock);
      lock.throwIfLost();
      return worked;
    });
    isCommitted = true;
    return value;
  };
  try {
    return await locks.withLock(key, acquireOptions, inTransaction);
  } catch (cause) {
    if (!isCommitted || !(cause instanceof LockLostError)) throw cause;
    throw new LockLostError(
      `Lock "${key}" was lost while its transaction was being committed. It is committed: do not repeat it.`,
      { key, cause },
    );
  }
}

/**
 * It would be committed after the release.
 *
 * @throws LockConfigError
 */
function refuseOpenTransaction(dataSource: DataSource, key: string): void {
  const { queryRunner } = managerOf(dataSource);
  const inProcess = dataSource.options.type === 'better-sqlite3' ? dataSource.createQueryRunner() : undefined;
  if (!queryRunner?.isTransactionActive && !inProcess?.isTransactionActive) return;
  throw new LockConfigError(
    `Expected no open transaction of the data source, got one: it would be committed after the lock is released. Call ` +
      `withLockedTransaction() outside of it.`,
    { key },
  );
}
