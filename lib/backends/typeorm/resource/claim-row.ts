import { isDeepStrictEqual } from 'node:util';
import {
  type EntityManager,
  type EntityMetadata,
  type EntityTarget,
  type FindOptionsOrder,
  type FindOptionsWhere,
  IsNull,
  type ObjectLiteral,
} from 'typeorm';
import { LockTimeoutError } from '../../../core/errors.js';
import { Faults } from '../../../core/faults.js';
import { delay } from '../../../core/real-time.js';
import { shown } from '../../../core/shown.js';
import { pauseMs } from '../persist.js';
import { repeatOnConflict, unlessConflict } from './conflict.js';
import { type Database, UNCACHED, asWritten, dataSourceOf, onPrimary } from './database.js';
import { durable } from './durable.js';
import type { RowValues } from './fenced-update.js';
import { isObject } from './nested.js';
import { idOf } from './row-id.js';
import { checkOwnColumns, checkWhere, fresh } from './where.js';

export interface RowClaim<Entity extends ObjectLiteral> {
  /** Which rows may be claimed, by columns of their own, for instance those of one state, or that of one id and state. */
  from: FindOptionsWhere<Entity>;
  /** What the claimed row becomes. It must no longer be one of `from`, and keeps its id. */
  to: RowValues<Entity>;
  /** Which one comes first. Without it any, so that many workers do not try for the same one. */
  order?: FindOptionsOrder<Entity>;
}

/** As many as are looked for at once. */
const CANDIDATES = 20;
/** Others who are quicker do not come in such numbers; a trigger that keeps a row as it is would have us look for ever. */
const MOST_LOOKS = 20;

/**
 * Moves one row from one state to the next, exactly once: of all who try, one gets the row, and the others get another row
 * or `null`. For the task that many workers grab.
 *
 * ```ts
 * const task = await claimRow(dataSource, Task, {
 *   from: { state: 'WAITING' },
 *   to: { state: 'RUNNING', worker },
 *   order: { id: 'ASC' },
 * });
 * if (task) {
 *   await work(task);
 *   await claimRow(dataSource, Task, { from: { id: task.id, state: 'RUNNING', worker }, to: { state: 'DONE' } });
 * }
 * ```
 *
 * A claim has no lease: a worker that dies leaves its row as it is. In a transaction of yours the claim counts when it
 * commits, and others who try for the same row wait for that; so claim outside of it.
 *
 * Outside of a transaction, a serialization failure or a deadlock counts as somebody else being quicker. The condition is
 * about columns of the row itself, or the id of a row that it refers to.
 *
 * @returns the row as it is after the claim; `null` if there is none to claim
 * @throws LockTimeoutError if others were quicker again and again; LockConfigError
 */
export async function claimRow<Entity extends ObjectLiteral>(
  database: Database,
  entity: EntityTarget<Entity>,
  claim: RowClaim<Entity>,
): Promise<Entity | null> {
  checkClaim(claim);
  return onPrimary(database, async (manager) => {
    const metadata = dataSourceOf(manager).getMetadata(entity);
    checkOwnColumns('from', metadata, claim.from);
    checkChange(metadata, claim);
    for (let looks = 1; looks <= MOST_LOOKS; looks += 1) {
      const candidates = await repeatOnConflict(manager, () => look(manager, metadata, claim, looks > 1));
      if (candidates.length === 0) return null;
      for (const id of candidates) {
        if (await unlessConflict(manager, () => take(manager, metadata, claim, id))) {
          const where = id as FindOptionsWhere<Entity>;
          return await repeatOnConflict(manager, () =>
            manager.findOne(entity, { where, withDeleted: true, ...UNCACHED }),
          );
        }
      }
      await delay(pauseMs(looks));
    }
    throw new LockTimeoutError(
      `Expected to claim a row of ${metadata.name} ${shown(claim.from)}, but others were quicker with each row that was ` +
        `found in ${MOST_LOOKS} looks. Try again later.`,
    );
  });
}

/** The ids of some rows that seem to be there to be claimed. */
async function look(
  manager: EntityManager,
  metadata: EntityMetadata,
  { from, order }: RowClaim<ObjectLiteral>,
  isAgain: boolean,
): Promise<ObjectLiteral[]> {
  const asMet = isAgain ? asWritten(manager) : {};
  const ids = metadata.primaryColumns.map((column) => column.createValueMap(true));
  const rows = await manager.find<ObjectLiteral>(metadata.target, {
    select: Object.assign({}, ...ids) as object,
    where: fresh(from),
    ...(order && { order }),
    // What is locked is kept from others until the transaction ends.
    take: asMet.lock ? 1 : CANDIDATES,
    loadEagerRelations: false,
    ...UNCACHED,
    ...asMet,
  });
  const found = rows.map((row) => idOf(metadata, row));
  const first = order ? 0 : Math.floor(Math.random() * found.length);
  return [...found.slice(first), ...found.slice(0, first)];
}

/** Says whether the row was still there to be claimed. The database lets one of all who try find it. */
async function take(
  manager: EntityManager,
  metadata: EntityMetadata,
  { from, to }: RowClaim<ObjectLiteral>,
  id: ObjectLiteral,
): Promise<boolean> {
  const query = manager.createQueryBuilder().update(metadata.target).set(to).where(fresh(from)).andWhere(id);
  // TypeORM leaves out deleted rows where it reads, not where it writes.
  const { deleteDateColumn } = metadata;
  if (deleteDateColumn) query.andWhere(deleteDateColumn.createValueMap(IsNull()));
  const { affected } = await query.andWhere(durable(manager)).execute();
  return affected === 1;
}

/** @throws LockConfigError */
function checkClaim(claim: unknown): void {
  const faults = new Faults();
  const { from, to, order } = faults.object('the claim', claim ?? null, ['from', 'to', 'order']);
  faults.expect(
    'order',
    order,
    "an object such as { id: 'ASC' }",
    typeof order === 'object' && order !== null,
  );
  if (!isObject(from) || !isObject(to)) {
    faults.add(
      `expected 'from' to say which rows may be claimed and 'to' what the claimed one becomes, such as ` +
        `{ from: { state: 'WAITING' }, to: { state: 'RUNNING' } }, got { from: ${shown(from)}, to: ${shown(to)} }`,
    );
  }
  faults.throwIfAny('Wrong claim');
  checkWhere('from', from);
}

/** @throws LockConfigError if the claimed row could be claimed again, or would be another one */
function checkChange({ columns, name }: EntityMetadata, { from, to }: RowClaim<ObjectLiteral>): void {
  const faults = new Faults();
  const changes = columns.flatMap((column) => {
    const [was, is] = [from, to].map((values): unknown => column.getEntityValue(values));
    return is === undefined || isDeepStrictEqual(was, is) ? [] : [{ column, was, is }];
  });
  // What operators find is not known here.
  if (!changes.some(({ was }) => was !== undefined)) {
    faults.add(
      `expected 'to' to change what 'from' asks for, such as { state: 'RUNNING' } after { state: 'WAITING' }, ` +
        `got ${shown(to)} after ${shown(from)}: the row could be claimed again`,
    );
  }
  const changed = changes.find(
    ({ column, was, is }) => column.isPrimary && String(was as number) !== String(is as number),
  );
  if (changed) {
    faults.add(
      `expected 'to' to leave the id of ${name} as it is, got ${shown(changed.is)} for ${changed.column.propertyPath}`,
    );
  }
  faults.throwIfAny('Wrong claim');
}
