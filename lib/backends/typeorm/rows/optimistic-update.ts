import type { EntityManager, EntityMetadata, EntityTarget, FindOptionsWhere, ObjectLiteral } from 'typeorm';
import { LockConfigError, LockTimeoutError } from '../../../core/errors.js';
import { formatValue } from '../../../core/format.js';
import { OptionErrors } from '../../../core/option-errors.js';
import { delay } from '../../../core/real-timers.js';
import { backoffMs } from '../connections/session.js';
import {
  type Database,
  dataSourceOf,
  durableCommitCondition,
  entityMetadataOf,
  managerOf,
  newestRowsOptions,
} from './database.js';
import { isSameValue } from './comparable-value.js';
import { EntitySnapshot, requireId, versionColumnOf } from './entity-snapshot.js';
import { findRows } from './find-rows.js';
import { retryOnConflict } from './transactions/conflict-retry.js';
import { onPrimary } from './transactions/primary-connection.js';
import { guardOf } from './transactions/runner-guard.js';
import { executeUpdate } from './update-listeners.js';
import { checkOwnColumns, checkWhere, isObject } from './where-conditions.js';

export interface OptimisticUpdateOptions {
  /**
   * The maximum number of attempts to read, change and write the row.
   *
   * @default 10
   */
  attempts?: number;
}

const DEFAULT_ATTEMPTS = 10;

/**
 * Changes one row without a lock, unless another change has incremented its version. It reads the row, calls `change`, and
 * writes the changed values if the row still has the version that was read. Otherwise it starts again after a short
 * random pause. The entity needs a `@VersionColumn()`, which TypeORM increments but does not check when it saves.
 *
 * ```ts
 * const account = await optimisticUpdate(dataSource, Account, { id }, (account) => {
 *   account.balance -= 10;
 * });
 * ```
 *
 * `change` may be called several times, each time with the row as it is then, so it should have no side effects. If it
 * throws, nothing is written and the error is rethrown. It must modify the object that it receives: its return value is
 * not written, and if it returns a modified copy, a `LockConfigError` is thrown. Relations are not loaded, and a lazy one
 * is written only if `change` assigns it. Subscribers to updates are called, but no `@BeforeUpdate()` method of the class.
 * If a subscriber throws after the update, the row is written although the call rejects.
 *
 * In your own transaction, a row that others have changed is locked at the second attempt (MySQL, MariaDB), or the
 * database throws an error after which you must repeat the whole transaction (SQLite, PostgreSQL from REPEATABLE READ
 * on, and MariaDB with `innodb_snapshot_isolation`). Outside of a transaction such an error counts as an attempt.
 *
 * If the transaction, or a nested one, is rolled back later, read the row again: the returned object keeps its new
 * values.
 *
 * @returns the changed row, without reading back what the database or a subscriber has set; `null` if no row matches
 * @throws LockTimeoutError if the row was changed by others at each attempt
 * @throws LockConfigError if several rows match, or an argument is wrong; if `change` moves the row within a tree; if the
 *   transaction has ended, or a nested one was rolled back, before the row was written
 */
export async function optimisticUpdate<Entity extends ObjectLiteral>(
  database: Database,
  entity: EntityTarget<Entity>,
  where: FindOptionsWhere<Entity>,
  change: (row: Entity) => unknown,
  options: OptimisticUpdateOptions = {},
): Promise<Entity | null> {
  const attempts = attemptsFrom(options);
  checkChange(change);
  const manager = managerOf(database);
  const dataSource = dataSourceOf(manager);
  const metadata = entityMetadataOf(manager, entity);
  checkWhere('where', where, metadata);
  requireId(metadata);
  versionColumnOf(metadata);
  checkOwnColumns('where', metadata, where);
  const checkTransaction = manager.queryRunner && guardOf(manager.queryRunner).createTransactionCheck();
  for (let attempt = 1; attempt <= attempts; attempt += 1) {
    // No connection is kept while `change` runs, because `change` may need one of the same pool.
    const [row, another] = await onPrimary(database, (manager) => {
      checkTransaction?.();
      const readOptions = attempt > 1 ? newestRowsOptions(manager) : {};
      return retryOnConflict(manager, () => findRows(manager, metadata, where, { take: 2, ...readOptions }));
    });
    if (!row) return null;
    if (another) throw severalRowsError(metadata.name, where);
    const snapshot = new EntitySnapshot(dataSource, metadata.findInheritanceMetadata(row), row);
    throwIfNewRow(metadata, row, await change(row));
    const changes = await snapshot.changes();
    if (Object.keys(changes).length === 0) return row;
    const isWritten = await onPrimary(database, (manager) => {
      // The transaction may have ended while `change` ran.
      checkTransaction?.();
      return tryWrite(manager, snapshot, changes);
    });
    if (isWritten) return row;
    if (attempt < attempts) await delay(backoffMs(attempt));
  }
  throw conflictsError(metadata.name, where, attempts);
}

/** Writes unless the row has another version by now. Resolves to whether it did. */
async function tryWrite(manager: EntityManager, snapshot: EntitySnapshot, changes: ObjectLiteral) {
  const query = manager.createQueryBuilder().update(snapshot.metadata.target).set(changes);
  query.where(snapshot.id).andWhere(snapshot.version).andWhere(durableCommitCondition(manager));
  if (!(await executeUpdate(manager, query))) return false;
  snapshot.incrementVersion();
  return true;
}

const conflictsError = (name: string, where: object, attempts: number) =>
  new LockTimeoutError(
    `Expected to change ${name} ${formatValue(where)} within ${attempts} attempts, but others were quicker each time.`,
  );

const severalRowsError = (name: string, where: object) =>
  new LockConfigError(
    `Expected a condition that one row of ${name} meets, got ${formatValue(where)}, which several do. Name the row by its id; ` +
      `claimRow() takes any one of several.`,
  );

/**
 * A return value is not written, so a changed copy of the row would be lost silently.
 *
 * @throws LockConfigError if a changed copy was returned
 */
function throwIfNewRow({ name, columns }: EntityMetadata, row: ObjectLiteral, returned: unknown): void {
  // An arrow function without braces returns the value that it assigns.
  if (!isObject(returned) || returned === row || Object.values(row).includes(returned)) return;
  const lost = columns.find((column) => {
    // Reading it would send a query.
    if (column.isVirtual && column.relationMetadata?.isLazy) return false;
    const value: unknown = column.getEntityValue(returned);
    return value !== undefined && !isSameValue(value, column.getEntityValue(row));
  });
  if (!lost) return;
  throw new LockConfigError(
    `Expected the function to change the row of ${name} that it is given, got another object with another ` +
      `${lost.propertyPath}, which would not be written. Assign to the properties of the row instead.`,
  );
}

/** @throws LockConfigError if it is no function */
function checkChange(change: unknown): void {
  if (typeof change === 'function') return;
  throw new LockConfigError(`Expected a function that changes the row, got ${formatValue(change)}.`);
}

/** @throws LockConfigError if an option is wrong */
function attemptsFrom(options: OptimisticUpdateOptions): number {
  const errors = new OptionErrors();
  const { attempts } = errors.object('options', options, ['attempts']);
  const isValid = Number.isInteger(attempts) && (attempts as number) >= 1;
  errors.expect('options.attempts', attempts, 'a whole number, at least 1', isValid);
  errors.throwIfAny('Wrong options of optimisticUpdate');
  return options.attempts ?? DEFAULT_ATTEMPTS;
}
