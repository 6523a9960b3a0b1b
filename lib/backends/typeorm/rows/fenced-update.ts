import type { EntityTarget, FindOptionsWhere, ObjectLiteral, Repository } from 'typeorm';
import { LockConfigError } from '../../../core/errors.js';
import { type Fence, validFencingTokenOf } from '../../../core/fence.js';
import { formatValue } from '../../../core/format.js';
import { type Database, onPrimary } from './database.js';
import { type FencedTable, fencedRows } from './fenced-rows.js';
import { writeFenced } from './fenced-write.js';
import { isObject } from './plain-objects.js';
import { checkWhere } from './where-conditions.js';

/** What `update` of a repository takes. */
export type RowValues<Entity extends ObjectLiteral> = Parameters<Repository<Entity>['update']>[1];

/**
 * `UPDATE` that refuses an older fencing token than the newest that has read or written the row: a holder that slept
 * through its lease writes nothing over what the next one wrote. Read the row through `fencedFindOne` under the same
 * lock: a value that comes from a plain read may be out of date, and no token shows it.
 *
 * ```ts
 * await locks.withLock(`account:${id}`, async (lock) => {
 *   const account = await fencedFindOne(dataSource, Account, { id }, lock);
 *   if (!account) throw new NotFoundException();
 *   await fencedUpdate(dataSource, Account, { id }, { balance: account.balance - 10 }, lock);
 * });
 * ```
 *
 * The entity keeps the token in its `@FencingToken()` column. What the lock protects must be written in this way alone:
 * a plain `save()` or `update()` checks no token. The same token may write again, so a write whose answer was lost can
 * be repeated. Without values (`{}`) it shuts older tokens out and changes nothing else.
 *
 * If the condition matches several rows, all of them are written, or none if one has a newer token. A row that comes to match
 * after they were locked stays as it is; in a table without an entity it is written too, unless its token is newer.
 * A condition that does not name the id takes a short transaction, and on SQLite one statement. In a transaction of yours the
 * row stays locked until it ends, and helpers that you call at once run one after the other. Outside of one, a serialization
 * failure or a deadlock is tried again a few times; other errors of the database pass as they are.
 *
 * @returns `false` if there is no such row
 * @throws LockLostError if a newer token has read or written there, or if the lock is no longer valid, before anything is
 *   sent; LockConfigError
 */
export async function fencedUpdate<Entity extends ObjectLiteral>(
  database: Database,
  entity: EntityTarget<Entity>,
  where: FindOptionsWhere<Entity>,
  values: RowValues<Entity>,
  lock: Fence,
): Promise<boolean>;
/** The same for a table without an entity. Names of columns are those of the database. */
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
  const token = validFencingTokenOf(lock);
  checkWhere('where', where);
  checkValues(values);
  return onPrimary(database, (manager) =>
    writeFenced(manager, { rows: fencedRows(manager, target), where, token, lock }, values),
  );
}

/** @throws LockConfigError */
function checkValues(values: unknown): void {
  if (isObject(values) && !Array.isArray(values)) {
    const all: unknown[] = Object.values(values);
    if (all.length === 0 || all.some((value) => value !== undefined)) return;
  }
  throw new LockConfigError(`Expected values to write, such as { balance: 90 }, got ${formatValue(values)}.`);
}
