import { isDeepStrictEqual } from 'node:util';
import type { EntityMetadata, EntityTarget, FindOptionsWhere, ObjectLiteral } from 'typeorm';
import { LockConfigError, LockTimeoutError } from '../../../core/errors.js';
import { Faults } from '../../../core/faults.js';
import { delay } from '../../../core/real-time.js';
import { shown } from '../../../core/shown.js';
import { pauseMs } from '../persist.js';
import { AsRead, versionColumnOf } from './as-read.js';
import { repeatOnConflict, unlessConflict } from './conflict.js';
import { type Database, UNCACHED, asWritten, dataSourceOf, managerOf, onPrimary } from './database.js';
import { durable } from './durable.js';
import { isObject } from './nested.js';
import { transactionNow } from './runner-turns.js';
import { checkWhere, fresh } from './where.js';

export interface OptimisticUpdateOptions {
  /**
   * How often the row is read and written at most.
   *
   * @default 10
   */
  attempts?: number;
}

const ATTEMPTS = 10;

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
  const checkTransaction = manager.queryRunner && transactionNow(manager.queryRunner);
  const metadata = dataSource.getMetadata(entity);
  versionColumnOf(metadata);
  for (let attempt = 1; attempt <= attempts; attempt += 1) {
    // No connection is kept while `change` works, which may need one of the same pool.
    const [row, another] = await onPrimary(database, (manager) => {
      checkTransaction?.();
      const asMet = attempt > 1 ? asWritten(manager) : {};
      const options = { take: 2, loadEagerRelations: false, ...UNCACHED, ...asMet };
      return repeatOnConflict(manager, () => manager.find(entity, { where: fresh(where), ...options }));
    });
    if (!row) return null;
    if (another) throw several(metadata.name, where);
    const asRead = new AsRead(dataSource, metadata, row);
    refuseNewRow(metadata, row, await change(row));
    const changes = asRead.changes();
    if (Object.keys(changes).length === 0) return row;
    const result = await onPrimary(database, (manager) => {
      // It may have ended while `change` worked.
      checkTransaction?.();
      const query = manager.createQueryBuilder().update(metadata.target).set(changes);
      query.where(asRead.id).andWhere(asRead.version).andWhere(durable(manager));
      return unlessConflict(manager, () => query.execute());
    });
    if (result?.affected) {
      asRead.countUp();
      return row;
    }
    if (attempt < attempts) await delay(pauseMs(attempt));
  }
  throw new LockTimeoutError(
    `Expected to change ${metadata.name} ${shown(where)} within ${attempts} attempts, but others were quicker each time.`,
  );
}

const several = (name: string, where: object) =>
  new LockConfigError(
    `Expected a condition that one row of ${name} meets, got ${shown(where)}, which several do. Name the row by its id; ` +
      `claimRow() takes any one of several.`,
  );

/**
 * What is returned is not written, so a changed copy of the row would be lost in silence.
 *
 * @throws LockConfigError
 */
function refuseNewRow({ name, columns }: EntityMetadata, row: ObjectLiteral, returned: unknown): void {
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
  throw new LockConfigError(`Expected a function that changes the row, got ${shown(change)}.`);
}

/** @throws LockConfigError */
function attemptsFrom(options: OptimisticUpdateOptions): number {
  const faults = new Faults();
  const { attempts } = faults.object('options', options, ['attempts']);
  const isFine = Number.isInteger(attempts) && (attempts as number) >= 1;
  faults.expect('options.attempts', attempts, 'a whole number, at least 1', isFine);
  faults.throwIfAny('Wrong options of optimisticUpdate');
  return options.attempts ?? ATTEMPTS;
}
