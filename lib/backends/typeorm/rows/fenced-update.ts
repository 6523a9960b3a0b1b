import type { EntityTarget, FindOptionsWhere, ObjectLiteral, Repository } from 'typeorm';
import { LockConfigError } from '../../../core/errors.js';
import { type Fence, validFencingTokenOf } from '../../../core/fence.js';
import { formatValue } from '../../../core/format.js';
import { type Database, managerOf } from './database.js';
import { type FencedTable, metadataOfTarget, fencedRows } from './fenced-rows.js';
import { writeFenced } from './fenced-write.js';
import { onPrimary } from './transactions/primary-connection.js';
import { throwIfOutsideTransaction } from './transactions/recorded-transaction.js';
import { checkWhere, isObject } from './where-conditions.js';

/** The values that `update` of a repository accepts. */
export type RowValues<Entity extends ObjectLiteral> = Parameters<Repository<Entity>['update']>[1];

/**
 * Updates a row unless it has a newer fencing token, which `fencedFindOne` or `fencedUpdate` wrote under a later lock.
 * So a holder that was suspended for longer than its lease cannot overwrite what the next holder has written. Read the
 * row with `fencedFindOne` under the same lock: a value from a plain read may be out of date, and no token reveals
 * that.
 *
 * ```ts
 * await locks.withLock(`account:${id}`, async (lock) => {
 *   const account = await fencedFindOne(dataSource, Account, { id }, lock);
 *   if (!account) throw new NotFoundException();
 *   await fencedUpdate(dataSource, Account, { id }, { balance: account.balance - 10 }, lock);
 * });
 * ```
 *
 * The entity keeps the token in its `@FencingToken()` column. Write the rows that the lock protects only with
 * `fencedUpdate`: a plain `save()` or `update()` checks no token. The same token can write again, so you can repeat a
 * write whose result was lost, unless a value is an SQL expression. With empty values (`{}`) only the token is written, which makes the row reject older
 * tokens.
 *
 * If `where` matches several rows, all of them are updated, or none if one has a newer token. If another row begins to
 * match after these rows were locked, it is not updated. (In a table without an entity, it is updated, unless it has a
 * newer token.) If `where` does not contain the id, the update needs a short transaction; on SQLite, one statement.
 *
 * In your own transaction, the row stays locked until the transaction ends, and concurrent calls of these helpers run
 * one after the other. Outside of a transaction, a serialization failure or a deadlock is retried, up to 20 attempts.
 * Other errors of the database are thrown unchanged. If a subscriber throws after the update of a row that is named by
 * its id, outside of a transaction, the row is written although the call rejects.
 *
 * @returns `false` if no row matches
 * @throws LockLostError if a row has a newer token; or, before anything is sent, if the lock is no longer valid
 * @throws LockConfigError if an argument is wrong
 */
export async function fencedUpdate<Entity extends ObjectLiteral>(
  database: Database,
  entity: EntityTarget<Entity>,
  where: FindOptionsWhere<Entity>,
  values: RowValues<Entity>,
  lock: Fence,
): Promise<boolean>;
/** `fencedUpdate` for a table without an entity. Columns have the names of the database. */
export async function fencedUpdate(
  database: Database,
  table: FencedTable,
  where: Readonly<Record<string, unknown>>,
  values: Readonly<Record<string, unknown>>,
  lock: Fence,
): Promise<boolean>;
export async function fencedUpdate(
  database: Database,
  target: EntityTarget<ObjectLiteral> | FencedTable,
  where: object,
  values: object,
  lock: Fence,
): Promise<boolean> {
  const manager = managerOf(database);
  const metadata = metadataOfTarget(manager, target);
  const token = validFencingTokenOf(lock);
  checkWhere('where', where, metadata);
  checkValues(values);
  throwIfOutsideTransaction(manager);
  return onPrimary(database, (manager) =>
    writeFenced(manager, { rows: fencedRows(manager, target), where, token, lock }, values),
  );
}

/** @throws LockConfigError if there is nothing to write; `{}` is allowed */
function checkValues(values: unknown): void {
  if (isObject(values) && !Array.isArray(values)) {
    const all: unknown[] = Object.values(values);
    if (all.length === 0 || all.some((value) => value !== undefined)) return;
  }
  throw new LockConfigError(`Expected values to write, such as { balance: 90 }, got ${formatValue(values)}.`);
}
