import type { DataSource, EntityManager, QueryRunner } from 'typeorm';
import { countLocksOf, findLocksOf } from '../../../../core/data-source-registry.js';
import { LockConfigError, LockLostError } from '../../../../core/errors.js';
import { formatValue } from '../../../../core/format.js';
import type { InternalLock } from '../../../../core/leases/internal-lock.js';
import type { Lock } from '../../../../core/lock.js';
import type { LockKey } from '../../../../core/key.js';
import { runInTransactionContext } from '../../../../core/open-transactions.js';
import { type AcquireOptions, BUILT_IN_LOCK_OPTIONS, checkAcquireOptions } from '../../../../core/options.js';
import { isInProcess, managerOf } from '../database.js';
import { runCheckedTransaction } from './checked-transaction.js';
import { runQueuedTransaction } from './only-connection.js';
import { guardOf } from './runner-guard.js';

export interface LockedTransactionOptions extends AcquireOptions {
  /**
   * The `LockService` that acquires the lock. Pass it to use a named module, or if the data source is neither a
   * provider of the application nor that of its `typeormBackend`.
   */
  locks?: LockProvider;
}

type Work<T> = (manager: EntityManager, lock: Lock) => T | Promise<T>;

/** The used part of a lock service. */
interface LockProvider {
  readonly defaultWaitMs?: number;
  withLock<T>(key: LockKey, options: AcquireOptions, work: (lock: Lock) => Promise<T>): Promise<T>;
}

/**
 * Acquires the lock, runs the work in a transaction, commits, and only then releases the lock. So the next holder sees
 * what was written. If you open the transaction first and acquire the lock inside it, the next holder may read old
 * values.
 *
 * ```ts
 * await withLockedTransaction(dataSource, `product:${id}`, async (manager, lock) => {
 *   const product = await fencedFindOne(manager, Product, { id }, lock);
 *   if (!product) throw new NotFoundException();
 *   await fencedUpdate(manager, Product, { id }, { stock: product.stock - 1 }, lock);
 * });
 * ```
 *
 * A list of keys locks all of them or none: write each row with `lock.fencingTokenOf(key)`.
 *
 * If the lock is lost before COMMIT is sent, the transaction is rolled back. A process that is suspended just before it
 * sends COMMIT may still commit late, and so may a COMMIT without an answer after the end of the lease. To prevent both, read
 * and write with the fenced helpers. The options are those of `withLock`. The lock comes from the module without a name, or
 * from the only module; otherwise pass `locks`.
 *
 * If the work begins a transaction with its manager, that is a savepoint. On SQLite, so is every other transaction that
 * it begins. COMMIT waits for these nested transactions, without a timeout. They must not overlap: await one before you
 * begin the next, otherwise the rollback of one undoes the other. If a nested transaction cannot be rolled back, the
 * whole transaction is.
 *
 * On SQLite, TypeORM has one connection, so the locked transactions of a data source run one after the other, whatever
 * their keys. `waitMs` limits that wait too. Locked and other transactions of the data source wait for each other, up
 * to 10 000 ms. On SQLite, do not call `withLockedTransaction` inside `withLock`: you may wait for the connection of
 * another locked transaction, while that one waits for your lock. Both then wait until `waitMs` is over.
 *
 * @throws what `withLock` and the work throw, after a rollback; errors of the database; after COMMIT, the error of a subscriber
 *   to `afterTransactionCommit`
 * @throws LockTimeoutError if the lock, or on SQLite the connection, is not free after `waitMs`
 * @throws LockLostError if the lock was lost; if the transaction was committed nevertheless, or may be committed because COMMIT
 *   got no answer, the message says so
 * @throws LockConfigError if no lock service belongs to the data source; if a transaction is open already, or was left open on
 *   the connection that the pool returns; if the database has rolled the transaction back after an error that the work caught,
 *   or a nested transaction could not be rolled back
 */
export async function withLockedTransaction<T>(
  dataSource: DataSource,
  key: string | readonly string[],
  work: Work<T>,
): Promise<T>;
export async function withLockedTransaction<T>(
  dataSource: DataSource,
  key: string | readonly string[],
  options: LockedTransactionOptions,
  work: Work<T>,
): Promise<T>;
export async function withLockedTransaction<T>(
  dataSource: DataSource,
  keys: LockKey,
  ...rest: [Work<T>] | [LockedTransactionOptions, Work<T>]
): Promise<T> {
  const work: unknown = rest.at(-1);
  if (!isWork<T>(work)) throw argumentsError(dataSource, keys, work);
  const key = [keys].flat().join(', ');
  requireDataSource(dataSource, key);
  const options = rest.length > 1 ? (rest[0] as LockedTransactionOptions) : {};
  const { locks = findLocksOf(dataSource), ...acquireOptions } = options;
  checkAcquireOptions(typeof options === 'object' ? acquireOptions : options);
  throwIfInTransaction(managerOf(dataSource).queryRunner, key);
  if (!locks) throw noLocksError(dataSource, key);
  if (typeof (locks as Partial<LockProvider>).withLock !== 'function')
    throw new LockConfigError(`Expected options.locks to be a LockService, got ${formatValue(locks)}.`);
  const { waitMs = locks.defaultWaitMs ?? BUILT_IN_LOCK_OPTIONS.waitMs, signal } = acquireOptions;
  const hasOneConnection = isInProcess(managerOf(dataSource));
  let isCommitted = false as boolean;
  const inTransaction = async (lock: Lock): Promise<T> => {
    const value = await commitUnder(lock, { dataSource, key, signal, work });
    isCommitted = true;
    return value;
  };
  // The connection comes before the lock: a holder that waits for the connection could block the transaction that has the
  // connection and waits for the lock.
  const runWithLock = () => locks.withLock(keys, acquireOptions, inTransaction);
  try {
    if (!hasOneConnection) return await runWithLock();
    const isNested = guardOf(dataSource.createQueryRunner()).isInOwnTransaction;
    const request = { name: `lock "${key}"`, key, waitMs, signal, isNested };
    return await runQueuedTransaction(dataSource, request, runWithLock);
  } catch (cause) {
    throw isCommitted && cause instanceof LockLostError ? lostAtCommitError(key, cause) : cause;
  }
}

interface LockedWork<T> {
  readonly dataSource: DataSource;
  readonly key: string;
  readonly signal: AbortSignal | undefined;
  readonly work: Work<T>;
}

/** Runs the work in a transaction. Resolves when that is committed. */
function commitUnder<T>(lock: Lock, { dataSource, key, signal, work }: LockedWork<T>): Promise<T> {
  const owner = managerOf(dataSource);
  const transaction = {
    ...{ name: `lock "${key}"`, key },
    beforeCommit: () => lock.throwIfLost(),
    onUnansweredCommit: (cause: unknown, outcome: 'unknown' | 'pending') =>
      outcome === 'unknown'
        ? unknownCommitError(key, cause)
        : loseWithoutRelease(lock, unansweredCommitError(key, cause)),
  };
  const run = () =>
    runCheckedTransaction(owner, transaction, (manager) =>
      runInTransactionContext(manager.queryRunner as QueryRunner, () => work(manager, lock)),
    );
  if (!isInProcess(owner)) return run();
  return guardOf(dataSource.createQueryRunner()).runTransaction(() => {
    // It may have aborted while the transaction waited for the connection.
    signal?.throwIfAborted();
    return run();
  });
}

/** A release would let the next holder read old values, which this transaction may replace afterwards. */
function loseWithoutRelease(
  lock: Lock & Partial<Pick<InternalLock, 'loseWithoutRelease'>>,
  reason: LockLostError,
): Error {
  lock.loseWithoutRelease?.(reason);
  return reason;
}

const unansweredCommitError = (key: string, cause: unknown) =>
  new LockLostError(
    `Expected the transaction under lock "${key}" to be committed, but there was no answer to COMMIT (see cause). It may or ` +
      `may not be committed, perhaps later: look at the data before you repeat it. The lock is not released: its lease ends ` +
      `by itself.`,
    { key, cause },
  );

const unknownCommitError = (key: string, cause: unknown) =>
  new LockLostError(
    `Expected the transaction under lock "${key}" to be committed, but the driver got no answer to COMMIT (see cause). It has ` +
      `ended, and may or may not be committed: look at the data before you repeat it. The lock is released.`,
    { key, cause },
  );

const lostAtCommitError = (key: string, cause: LockLostError) =>
  new LockLostError(
    `Lock "${key}" was lost while its transaction was being committed. It is committed: do not repeat it.`,
    { key, cause },
  );

/** @throws LockConfigError for an entity manager or a repository: the transaction is begun here */
function requireDataSource(value: object, key: string): void {
  if (Object(value) === value && 'createQueryRunner' in value && 'manager' in value) return;
  throw new LockConfigError(
    `withLockedTransaction() expects a DataSource, got ${formatValue(value)}. It begins the transaction itself: pass the data ` +
      `source, and use the manager that your work receives.`,
    { key },
  );
}

/**
 * An open transaction of the caller would be committed after the lock is released.
 *
 * @throws LockConfigError if there is one
 */
function throwIfInTransaction(runner: QueryRunner | undefined, key: string): void {
  if (!runner?.isTransactionActive) return;
  throw new LockConfigError(
    `Expected no open transaction of the data source, got one: it would be committed after the lock is released. Call ` +
      `withLockedTransaction() outside of it.`,
    { key },
  );
}

const isWork = <T>(value: unknown): value is Work<T> => typeof value === 'function';

const argumentsError = (...[dataSource, key, work]: unknown[]) =>
  new LockConfigError(
    `Expected withLockedTransaction(dataSource, key, options?, work), where work is a function, got ` +
      `${[typeof dataSource === 'object' ? 'a data source' : formatValue(dataSource), formatValue(key), formatValue(work)].join(', ')}.`,
  );

function noLocksError(dataSource: DataSource, key: string): LockConfigError {
  const got =
    countLocksOf(dataSource) > 0
      ? 'several lock modules, each with a name or each without'
      : 'none: the application has no DistributedLockModule, has not begun to boot, or does not provide this data source';
  return new LockConfigError(
    `withLockedTransaction() expects one lock module for its data source, got ${got}. It uses the lock module of the ` +
      `application in which the data source is a provider. With several lock modules, or for a data source of your own, ` +
      `pass { locks: lockService }.`,
    { key },
  );
}
