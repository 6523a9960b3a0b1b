import { isDeepStrictEqual } from 'node:util';
import type { EntityMetadata, EntityTarget, FindOptionsWhere, ObjectLiteral } from 'typeorm';
import { LockConfigError, LockTimeoutError } from '../../../core/errors.js';
import { formatValue } from '../../../core/format.js';
import { OptionErrors } from '../../../core/option-errors.js';
import { delay } from '../../../core/real-time.js';
import { backoffMs } from '../requests/retry-while-busy.js';
import {
  type Database,
  UNCACHED,
  dataSourceOf,
  managerOf,
  newestRowsOptions,
  onPrimary,
} from './database.js';
import { EntitySnapshot, versionColumnOf } from './entity-snapshot.js';
import { isObject } from './plain-objects.js';
import { retryOnConflict, tryUnlessConflict } from './transactions/conflict-retry.js';
import { durableCommitCondition } from './transactions/durable-commit.js';
import { createTransactionCheck } from './transactions/runner-transactions.js';
import { checkWhere, copyWhere } from './where-conditions.js';

export interface OptimisticUpdateOptions {
  /**
   * How often the row is read and written at most.
   *
   * @default 10
   */
  attempts?: number;
}

const DEFAULT_ATTEMPTS = 10;

/**
 * Changes one row so that no change of anybody else is overwritten, without a lock: reads it, lets `change` work on it, and
 * writes what was changed if the row still has the version that was read; otherwise all of it again, after a short random
 * pause. The entity needs a `@VersionColumn()`, which TypeORM counts up but does not check when it saves.
 *
 * ```ts
 * const account = await optimisticUpdate(dataSource, Account, { id }, (account) => {
 *   account.balance -= 10;
 * });
 * ```
 *
 * `change` may be called several times, each time with what is there by then, so nothing else should come of it. What it
 * throws passes, and nothing is written. It must change the row that it is given: what it returns is not written, and a
 * changed copy of the row is a `LockConfigError`. Relations are not loaded. In a transaction of yours, a row that somebody
 * else has changed is locked at the second attempt (MySQL, MariaDB), or is an error of the database after which only the
 * whole transaction can be tried again (SQLite, PostgreSQL from REPEATABLE READ on, and MariaDB with
 * `innodb_snapshot_isolation`). Outside of one, such an error counts as an attempt.
 *
 * If the transaction, or a nested one, is rolled back later, the row in the database is as before. The returned object is not:
 * read the row again.
 *
 * @returns the row as it was written; `null` if there is none. An `@UpdateDateColumn()` is not read back
 * @throws LockTimeoutError if others were quicker at each attempt; LockConfigError, also if several rows meet the condition, or
 *   the transaction has ended, or a nested one was rolled back, before the row was written
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
  checkWhere('where', where);
  const manager = managerOf(database);
  const dataSource = dataSourceOf(manager);
  const checkTransaction = manager.queryRunner && createTransactionCheck(manager.queryRunner);
  const metadata = dataSource.getMetadata(entity);
  versionColumnOf(metadata);
  for (let attempt = 1; attempt <= attempts; attempt += 1) {
    // No connection is kept while `change` works, which may need one of the same pool.
    const [row, another] = await onPrimary(database, (manager) => {
      checkTransaction?.();
      const readOptions = attempt > 1 ? newestRowsOptions(manager) : {};
      const options = { take: 2, loadEagerRelations: false, ...UNCACHED, ...readOptions };
      return retryOnConflict(manager, () => manager.find(entity, { where: copyWhere(where), ...options }));
    });
    if (!row) return null;
    if (another) throw severalRowsError(metadata.name, where);
    const snapshot = new EntitySnapshot(dataSource, metadata, row);
    throwIfNewRow(metadata, row, await change(row));
    const changes = snapshot.changes();
    if (Object.keys(changes).length === 0) return row;
    const result = await onPrimary(database, (manager) => {
      // It may have ended while `change` worked.
      checkTransaction?.();
      const query = manager.createQueryBuilder().update(metadata.target).set(changes);
      query.where(snapshot.id).andWhere(snapshot.version).andWhere(durableCommitCondition(manager));
      return tryUnlessConflict(manager, () => query.execute());
    });
    if (result?.affected) {
      snapshot.incrementVersion();
      return row;
    }
    if (attempt < attempts) await delay(backoffMs(attempt));
  }
  throw new LockTimeoutError(
    `Expected to change ${metadata.name} ${formatValue(where)} within ${attempts} attempts, but others were quicker each time.`,
  );
}

const severalRowsError = (name: string, where: object) =>
  new LockConfigError(
    `Expected a condition that one row of ${name} meets, got ${formatValue(where)}, which several do. Name the row by its id; ` +
      `claimRow() takes any one of several.`,
  );

/**
 * What is returned is not written, so a changed copy of the row would be lost in silence.
 *
 * @throws LockConfigError
 */
function throwIfNewRow({ name, columns }: EntityMetadata, row: ObjectLiteral, returned: unknown): void {
  // An assignment without braces returns what was assigned.
  if (!isObject(returned) || returned === row || Object.values(row).includes(returned)) return;
  const lost = columns.find((column) => {
    const value: unknown = column.getEntityValue(returned);
    return value !== undefined && !isDeepStrictEqual(value, column.getEntityValue(row));
  });
  if (!lost) return;
  throw new LockConfigError(
    `Expected the function to change the row of ${name} that it is given, got another object with another ` +
      `${lost.propertyPath}, which would not be written. Assign to the properties of the row instead.`,
  );
}

/** @throws LockConfigError */
function checkChange(change: unknown): void {
  if (typeof change === 'function') return;
  throw new LockConfigError(`Expected a function that changes the row, got ${formatValue(change)}.`);
}

/** @throws LockConfigError */
function attemptsFrom(options: OptimisticUpdateOptions): number {
  const errors = new OptionErrors();
  const { attempts } = errors.object('options', options, ['attempts']);
  const isValid = Number.isInteger(attempts) && (attempts as number) >= 1;
  errors.expect('options.attempts', attempts, 'a whole number, at least 1', isValid);
  errors.throwIfAny('Wrong options of optimisticUpdate');
  return options.attempts ?? DEFAULT_ATTEMPTS;
}
