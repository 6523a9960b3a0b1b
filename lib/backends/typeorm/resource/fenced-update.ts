import type { EntityManager, EntityTarget, FindOptionsWhere, ObjectLiteral, Repository } from 'typeorm';
import { LockConfigError } from '../../../core/errors.js';
import { type Fence, fencedOut, fencingTokenOf } from '../../../core/fence.js';
import { shown } from '../../../core/shown.js';
import { type Database, asWritten, dataSourceOf, isMysql, onPrimary } from './database.js';
import { type FencedRows, type FencedTable, castsOf, fencedRows } from './fenced-rows.js';
import { isObject } from './nested.js';
import { checkWhere } from './where.js';

/** What `update` of a repository takes. */
export type RowValues<Entity extends ObjectLiteral> = Parameters<Repository<Entity>['update']>[1];

/**
 * `UPDATE` that refuses whoever comes with an older fencing token than the newest that has written the row: a holder that
 * slept through its lease writes nothing over what the next one wrote. Look and write are one statement, in the
 * transaction of the given manager or by itself.
 *
 * ```ts
 * await locks.withLock(`account:${id}`, async (lock) => {
 *   const account = await dataSource.manager.findOneByOrFail(Account, { id });
 *   await fencedUpdate(dataSource, Account, { id }, { balance: account.balance - 10 }, lock);
 * });
 * ```
 *
 * The entity keeps the token in its `@FencingToken()` column. What the lock protects must be written in this way alone:
 * a plain `save()` or `update()` asks for no token. The same token may write again, so a write whose answer was lost can
 * be repeated. Without values (`{}`) it shuts older tokens out and changes nothing else. Where the condition names several
 * rows, those with older tokens are written even if others refuse; in a transaction the error rolls them back. Errors of
 * the database pass as they are.
 *
 * @returns `false` if there is no such row
 * @throws LockLostError if a newer token has written there; LockConfigError
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
  const token = fencingTokenOf(lock);
  checkWhere('where', where);
  checkValues(values);
  return onPrimary(database, async (manager) => {
    const rows = fencedRows(manager, target);
    const found = await write(manager, { rows, where, values, token });
    if (found > 0 && rows.isOne(where)) return true;
    const newest = await look(manager, { rows, where, token });
    if (newest !== undefined && newest > token) throw fencedOut(lock, `${rows.name} ${shown(where)}`, newest);
    return found > 0 || (newest === token && countsChanges(manager));
  });
}

/** @throws LockConfigError */
function checkValues(values: unknown): void {
  if (isObject(values) && !Array.isArray(values)) {
    const all: unknown[] = Object.values(values);
    if (all.length === 0 || all.some((value) => value !== undefined)) return;
  }
  throw new LockConfigError(`Expected values to write, such as { balance: 90 }, got ${shown(values)}.`);
}

interface Asked {
  readonly rows: FencedRows;
  readonly where: object;
  readonly token: bigint;
}

/** Says how many rows were found. */
async function write(
  manager: EntityManager,
  { rows, where, values, token }: Asked & { values: object },
): Promise<number> {
  const query = manager
    .createQueryBuilder()
    .update(rows.target)
    .set(rows.withToken(values, String(token)));
  const column = query.escape(rows.column);
  const { asNumber } = castsOf(manager);
  query.where(`(${column} IS NULL OR ${column} <= CAST(:token AS ${asNumber}))`, { token: String(token) });
  rows.narrow(query, where);
  const { affected = 0 } = await query.execute();
  return affected;
}

/** The newest token among the rows, unless all are older than ours. */
async function look(manager: EntityManager, { rows, where, token }: Asked): Promise<bigint | undefined> {
  const query = manager.createQueryBuilder().from(rows.target, 'fenced').withDeleted();
  const column = `${query.escape('fenced')}.${query.escape(rows.column)}`;
  const { asNumber, asText } = castsOf(manager);
  query
    .select(`CAST(${column} AS ${asText})`, 'newest')
    .where(`${column} >= CAST(:token AS ${asNumber})`, { token: String(token) })
    .orderBy(column, 'DESC')
    .limit(1);
  rows.narrow(query, where);
  const { lock } = asWritten(manager);
  if (lock) query.setLock(lock.mode);
  const row = await query.getRawOne<{ newest: string }>();
  return row && BigInt(row.newest);
}

/** MySQL was told to count an `UPDATE` that changes no value as none; mysql2 tells it otherwise. */
function countsChanges(manager: EntityManager): boolean {
  const { flags, extra } = dataSourceOf(manager).options as {
    flags?: unknown;
    extra?: { flags?: unknown };
  };
  return isMysql(manager) && String(extra?.flags ?? flags).includes('-FOUND_ROWS');
}
