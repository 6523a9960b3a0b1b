import type { EntityManager, EntityTarget, FindOptionsWhere, ObjectLiteral } from 'typeorm';
import { type Fence, validFencingTokenOf } from '../../../core/fence.js';
import { type Database, managerOf, newestRowsOptions } from './database.js';
import {
  type FencedTable,
  TOKEN_PARAMETER,
  metadataOfTarget,
  fencedRows,
  tokenParameter,
} from './fenced-rows.js';
import { type FencedRequest, checkNewestToken, writeFenced } from './fenced-write.js';
import { retryOnConflict } from './transactions/conflict-retry.js';
import { onPrimary } from './transactions/primary-connection.js';
import { throwIfOutsideTransaction } from './transactions/recorded-transaction.js';
import { checkWhere } from './where-conditions.js';

/**
 * Writes the fencing token of the lock into one row, and then reads the row. From then on, `fencedUpdate` rejects older
 * tokens for this row. So if you then write the row with `fencedUpdate` under the same lock, either nobody has changed
 * it meanwhile, or the write is rejected.
 *
 * ```ts
 * await locks.withLock(`account:${id}`, async (lock) => {
 *   const account = await fencedFindOne(dataSource, Account, { id }, lock);
 *   if (!account) throw new NotFoundException();
 *   await fencedUpdate(dataSource, Account, { id }, { balance: account.balance - 10 }, lock);
 * });
 * ```
 *
 * The row is returned only if it still has this token when it is read. Relations are not loaded. A row that does not
 * exist yet has no token: protect inserts with a unique key.
 *
 * In your own transaction, the row stays locked until the transaction ends, so the next holder of the lock waits for
 * your COMMIT. Outside of a transaction, a serialization failure or a deadlock is retried, up to 20 attempts. Other
 * errors of the database are thrown unchanged.
 *
 * Writing the token also increments a `@VersionColumn()` and sets an `@UpdateDateColumn()`. So `where` must not name them.
 *
 * @returns `null` if no row matches
 * @throws LockLostError if the row has a newer token; or, before anything is sent, if the lock is no longer valid
 * @throws LockConfigError if several rows match, an argument is wrong, or the driver of SQLite has rounded the id
 */
export async function fencedFindOne<Entity extends ObjectLiteral>(
  database: Database,
  entity: EntityTarget<Entity>,
  where: FindOptionsWhere<Entity>,
  lock: Fence,
): Promise<Entity | null>;
/** `fencedFindOne` for a table without an entity. Columns have the names and types of the database. */
export async function fencedFindOne(
  database: Database,
  table: FencedTable,
  where: Readonly<Record<string, unknown>>,
  lock: Fence,
): Promise<Record<string, unknown> | null>;
export async function fencedFindOne(
  database: Database,
  target: EntityTarget<ObjectLiteral> | FencedTable,
  where: object,
  lock: Fence,
): Promise<ObjectLiteral | null> {
  const manager = managerOf(database);
  const metadata = metadataOfTarget(manager, target);
  const token = validFencingTokenOf(lock);
  checkWhere('where', where, metadata);
  throwIfOutsideTransaction(manager);
  return onPrimary(database, async (manager) => {
    const request = { rows: fencedRows(manager, target), where, token, lock };
    request.rows.checkUnchanged(where);
    if (!(await writeFenced(manager, { ...request, needsSingleRow: true }, {}))) return null;
    const row = await retryOnConflict(manager, () => readWithToken(manager, request));
    // The row was deleted since, or has a newer token.
    if (!row) await checkNewestToken(manager, request);
    else request.rows.onRead(row);
    return row;
  });
}

async function readWithToken(
  manager: EntityManager,
  { rows, where, token }: FencedRequest,
): Promise<ObjectLiteral | null> {
  const { hasEntity, target } = rows;
  const query = hasEntity
    ? manager.createQueryBuilder(target, 'fenced')
    : manager.createQueryBuilder().from(target, 'fenced').select('*');
  const column = `${query.escape('fenced')}.${query.escape(rows.tokenColumn)}`;
  query.where(`${column} = ${tokenParameter(manager)}`, { [TOKEN_PARAMETER]: String(token) });
  // The conditions leave out rows that are deleted softly.
  query.withDeleted();
  rows.addConditions(query, where);
  const { lock } = newestRowsOptions(manager);
  if (lock) query.setLock(lock.mode);
  query.cache(false);
  return (hasEntity ? await query.getOne() : await query.getRawOne<ObjectLiteral>()) ?? null;
}
