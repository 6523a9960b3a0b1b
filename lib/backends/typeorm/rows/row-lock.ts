import type { EntityManager, EntityTarget, FindOptionsWhere, ObjectLiteral, QueryRunner } from 'typeorm';
import { systemClock } from '../../../core/clock.js';
import { LockConfigError, LockTimeoutError, LockUnavailableError } from '../../../core/errors.js';
import { formatValue } from '../../../core/format.js';
import { currentLock } from '../../../core/lock-context.js';
import { runInTransactionContext } from '../../../core/open-transactions.js';
import { delay } from '../../../core/real-timers.js';
import { backoffMs } from '../connections/session.js';
import {
  type Database,
  dataSourceOf,
  describeRows,
  entityMetadataOf,
  isInProcess,
  isInTransaction,
  isPostgres,
  managerOf,
} from './database.js';
import { conflictError, contentionError, toLockError } from './lock-errors.js';
import { type RowSelection, lockRow } from './locked-row.js';
import {
  type ResolvedRowLockOptions,
  type RowLockOptions,
  resolveRowLockOptions,
} from './row-lock-options.js';
import { MAX_ATTEMPTS, isConflict } from './transactions/conflict-retry.js';
import type { IsolationLevel } from './transactions/checked-transaction.js';
import { runOwnTransaction } from './transactions/own-transaction.js';
import { defaultIsolationLevelOf } from './transactions/isolation-level.js';
import { throwIfBegunByStatement, throwIfBegunInProcess } from './transactions/session-state.js';
import { recordTransactionOf } from './transactions/recorded-transaction.js';
import { guardOf } from './transactions/runner-guard.js';
import { isContention } from './wait-limit.js';
import { checkOwnColumns, checkWhere } from './where-conditions.js';

type Work<Entity, T> = (row: Entity, manager: EntityManager) => T | Promise<T>;

interface RowRequest<Entity, T> extends RowSelection<Entity>, ResolvedRowLockOptions {
  readonly work: Work<Entity, T>;
  /** Of our own transaction, unless it is the default. */
  readonly isolationLevel?: IsolationLevel | undefined;
}

/**
 * Locks one row in a transaction with `SELECT … FOR UPDATE`, runs the work, and commits. Until then, others that lock or write
 * the row wait. Opens a transaction, or uses the one of the manager, which you commit.
 *
 * ```ts
 * await withRowLock(dataSource, Product, { id }, async (product, manager) => {
 *   product.stock -= 1;
 *   await manager.save(product);
 * });
 * ```
 *
 * The row is locked by the database: it has no lease and no token, and if the process dies, the database rolls back. In
 * the work, use the manager that it receives. Relations are not loaded. Rows that are deleted softly are not found, unless
 * `where` names that column. `where` can use columns of the row itself, and the id of a related row.
 *
 * If a deadlock or a serialization failure ends our own transaction before the work was called, it is repeated, up to 20
 * attempts within `waitMs`. Afterwards only `attempts` repeats it, and with it the work. In your own transaction neither
 * is repeated: roll back, and repeat all of it.
 *
 * On PostgreSQL, our own transaction is READ COMMITTED if REPEATABLE READ is the default: the work must see what was committed while
 * the call waited. In your own transaction, call it before you read. SERIALIZABLE stays as it is: the work may see what was
 * there before the call waited, and its transaction then fails if it writes by it.
 *
 * On SQLite the transaction locks the whole file against other writers, and other transactions of the data source wait.
 *
 * @returns what the work returns; `null`, without calling the work, if no row matches or, with `onContention: 'skip'`, all
 *   that match are locked
 * @throws what the work throws, unchanged; errors of the database, unless one of the next lines is about them. If COMMIT
 *   got no answer, that is the error of the driver, and the transaction may be committed. After the error of a subscriber
 *   to `afterTransactionCommit`, or to `afterQuery` of the COMMIT, it is committed
 * @throws LockTimeoutError if another transaction still has the lock after `waitMs`
 * @throws LockUnavailableError if the database has ended the transaction because of a concurrent one, with the `cause`
 * @throws LockConfigError if several rows match, or an argument is wrong; if the pool returns a connection with an open
 *   transaction; if the work has caught an error after which the database had rolled our transaction back
 */
export async function withRowLock<Entity extends ObjectLiteral, T>(
  database: Database,
  entity: EntityTarget<Entity>,
  where: FindOptionsWhere<Entity>,
  work: Work<Entity, T>,
  options: RowLockOptions = {},
): Promise<T | null> {
  if (typeof work !== 'function') {
    throw new LockConfigError(
      `Expected the work to be a function, got ${formatValue(work)}: call withRowLock(dataSource, entity, where, work, options).`,
    );
  }
  const resolved = resolveRowLockOptions(options);
  const manager = managerOf(database);
  const metadata = entityMetadataOf(manager, entity);
  checkWhere('where', where, metadata);
  checkOwnColumns('where', metadata, where);
  const request = {
    ...resolved,
    metadata,
    name: `the row of ${describeRows(metadata.name, where)}`,
    where,
    work,
  };
  const { queryRunner } = manager;
  // Before the decision: from then on, other calls must see at once that a transaction begins.
  if (isInProcess(manager)) throwIfBegunInProcess(queryRunner ?? dataSourceOf(manager).createQueryRunner());
  else if (queryRunner) await throwIfBegunByStatement(queryRunner);
  const isolationLevel = isPostgres(manager) ? await isolationLevelAfterWait(manager) : undefined;
  return isInTransaction(manager)
    ? lockInTransactionOf(manager, request)
    : lockInOwn(manager, { ...request, isolationLevel });
}

async function lockInTransactionOf<Entity extends ObjectLiteral, T>(
  manager: EntityManager,
  request: RowRequest<Entity, T>,
): Promise<T | null> {
  recordTransactionOf(manager, currentLock());
  const guard = guardOf(manager.queryRunner as QueryRunner);
  const row = await guard
    .run(() => lockRow(manager, request, request))
    .catch((cause: unknown) => {
      // SQLite cannot skip a row, but its transaction can continue.
      if (request.skips && isInProcess(manager) && isContention(cause)) return null;
      throw toLockError(request, cause);
    });
  return row ? request.work(row, manager) : null;
}

/** Repeats the transaction after conflicts, as {@link withRowLock} says. */
async function lockInOwn<Entity extends ObjectLiteral, T>(
  owner: EntityManager,
  request: RowRequest<Entity, T>,
): Promise<T | null> {
  let calls = 0;
  let endsAtMs = systemClock.monotonicMs() + request.waitMs;
  for (let attempt = 1; ; attempt += 1) {
    const outcome = await tryInOwn(owner, request, endsAtMs);
    if (outcome.kind === 'committed') return outcome.value;
    const { cause, hasCalledWork, isFromWork } = outcome;
    if (outcome.kind === 'failed-after-commit') throw cause;
    if (!hasCalledWork && request.skips && cause instanceof LockTimeoutError) return null;
    if (hasCalledWork) calls += 1;
    const mayRepeat = hasCalledWork ? calls < request.attempts : attempt - calls < MAX_ATTEMPTS;
    if (!hasEndedTransaction(cause) || (isFromWork && !mayRepeat)) throw cause;
    if (!mayRepeat) throw conflictError(request, cause);
    await delay(backoffMs(attempt));
    if (hasCalledWork) endsAtMs = systemClock.monotonicMs() + request.waitMs;
  }
}

/** How one transaction of {@link lockInOwn} ended. */
type TryOutcome<T> =
  | { readonly kind: 'committed'; readonly value: T | null }
  | {
      readonly kind: 'rolled-back' | 'failed-after-commit';
      readonly cause: unknown;
      readonly hasCalledWork: boolean;
      /** Whether the work has thrown the cause. */
      readonly isFromWork: boolean;
    };

async function tryInOwn<Entity extends ObjectLiteral, T>(
  owner: EntityManager,
  request: RowRequest<Entity, T>,
  endsAtMs: number,
): Promise<TryOutcome<T>> {
  const leftMs = () => Math.max(0, endsAtMs - systemClock.monotonicMs());
  let kind: 'rolled-back' | 'failed-after-commit' = 'rolled-back';
  let hasCalledWork = false as boolean;
  let workError: unknown;
  const lockAndWork = async (manager: EntityManager): Promise<T | null> => {
    const wait = { waitMs: leftMs(), mayBeginAgain: true };
    const row = await lockRow(manager, request, wait).catch((cause: unknown) => {
      throw isContention(cause) ? contentionError(request, cause) : cause;
    });
    if (!row) return null;
    hasCalledWork = true;
    const work = () => request.work(row, manager);
    try {
      return await runInTransactionContext(manager.queryRunner as QueryRunner, work);
    } catch (cause) {
      workError = cause;
      throw cause;
    }
  };
  const onFailedAfterCommit = () => void (kind = 'failed-after-commit');
  const { name, isolationLevel } = request;
  const options = { name, isolationLevel, waitMs: leftMs(), onFailedAfterCommit };
  try {
    return { kind: 'committed', value: await runOwnTransaction(owner, options, lockAndWork) };
  } catch (cause) {
    return { kind, cause, hasCalledWork, isFromWork: hasCalledWork && cause === workError };
  }
}

/**
 * The level of our own transaction, unless it is the default. With REPEATABLE READ, PostgreSQL takes the snapshot of the
 * transaction before it waits for the row. The work would not see what the last transaction with the row has committed in other
 * rows, and nothing would fail if the row itself is unchanged.
 */
async function isolationLevelAfterWait(manager: EntityManager): Promise<IsolationLevel | undefined> {
  if (isInTransaction(manager)) return undefined;
  const level = await defaultIsolationLevelOf(manager);
  return level === 'repeatable read' ? 'READ COMMITTED' : undefined;
}

/** Whether a conflict has ended the transaction, also if a helper in the work has reported it. */
const hasEndedTransaction = (cause: unknown) =>
  isConflict(cause) || (cause instanceof LockUnavailableError && isConflict(cause.cause));
