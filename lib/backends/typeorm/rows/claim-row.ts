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
import { formatValue } from '../../../core/format.js';
import { OptionErrors } from '../../../core/option-errors.js';
import { delay } from '../../../core/real-time.js';
import { backoffMs } from '../requests/retry-while-busy.js';
import { type Database, UNCACHED, dataSourceOf, newestRowsOptions, onPrimary } from './database.js';
import type { RowValues } from './fenced-update.js';
import { isObject } from './plain-objects.js';
import { idOf } from './row-id.js';
import { retryOnConflict, tryUnlessConflict } from './transactions/conflict-retry.js';
import { durableCommitCondition } from './transactions/durable-commit.js';
import { checkOwnColumns, checkWhere, copyWhere } from './where-conditions.js';

export interface RowClaim<Entity extends ObjectLiteral> {
  /** Which rows may be claimed, by columns of their own, for instance those of one state, or that of one id and state. */
  from: FindOptionsWhere<Entity>;
  /** What the claimed row becomes. It must no longer be one of `from`, and keeps its id. */
  to: RowValues<Entity>;
  /** Which one comes first. Without it any, so that many workers do not try for the same one. */
  order?: FindOptionsOrder<Entity>;
}

/** As many as are looked for at once. */
const MAX_CANDIDATES = 20;
/** Others who are quicker do not come in such numbers; a trigger that keeps a row as it is would have us look for ever. */
const MAX_ATTEMPTS = 20;

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
    for (let attempt = 1; attempt <= MAX_ATTEMPTS; attempt += 1) {
      const candidates = await retryOnConflict(manager, () =>
        findCandidates(manager, metadata, claim, attempt > 1),
      );
      if (candidates.length === 0) return null;
      for (const id of candidates) {
        if (await tryUnlessConflict(manager, () => tryClaim(manager, metadata, claim, id))) {
          const where = id as FindOptionsWhere<Entity>;
          return await retryOnConflict(manager, () =>
            manager.findOne(entity, { where, withDeleted: true, ...UNCACHED }),
          );
        }
      }
      await delay(backoffMs(attempt));
    }
    throw new LockTimeoutError(
      `Expected to claim a row of ${metadata.name} ${formatValue(claim.from)}, but others were quicker with each row that was ` +
        `found in ${MAX_ATTEMPTS} looks. Try again later.`,
    );
  });
}

/** The ids of some rows that seem to be there to be claimed. */
async function findCandidates(
  manager: EntityManager,
  metadata: EntityMetadata,
  { from, order }: RowClaim<ObjectLiteral>,
  isRetry: boolean,
): Promise<ObjectLiteral[]> {
  const readOptions = isRetry ? newestRowsOptions(manager) : {};
  const ids = metadata.primaryColumns.map((column) => column.createValueMap(true));
  const rows = await manager.find<ObjectLiteral>(metadata.target, {
    select: Object.assign({}, ...ids) as object,
    where: copyWhere(from),
    ...(order && { order }),
    // What is locked is kept from others until the transaction ends.
    take: readOptions.lock ? 1 : MAX_CANDIDATES,
    loadEagerRelations: false,
    ...UNCACHED,
    ...readOptions,
  });
  const found = rows.map((row) => idOf(metadata, row));
  const first = order ? 0 : Math.floor(Math.random() * found.length);
  return [...found.slice(first), ...found.slice(0, first)];
}

/** Says whether the row was still there to be claimed. The database lets one of all who try find it. */
async function tryClaim(
  manager: EntityManager,
  metadata: EntityMetadata,
  { from, to }: RowClaim<ObjectLiteral>,
  id: ObjectLiteral,
): Promise<boolean> {
  const query = manager
    .createQueryBuilder()
    .update(metadata.target)
    .set(to)
    .where(copyWhere(from))
    .andWhere(id);
  // TypeORM leaves out deleted rows where it reads, not where it writes.
  const { deleteDateColumn } = metadata;
  if (deleteDateColumn) query.andWhere(deleteDateColumn.createValueMap(IsNull()));
  const { affected } = await query.andWhere(durableCommitCondition(manager)).execute();
  return affected === 1;
}

/** @throws LockConfigError */
function checkClaim(claim: unknown): void {
  const errors = new OptionErrors();
  const { from, to, order } = errors.object('the claim', claim ?? null, ['from', 'to', 'order']);
  errors.expect(
    'order',
    order,
    "an object such as { id: 'ASC' }",
    typeof order === 'object' && order !== null,
  );
  if (!isObject(from) || !isObject(to)) {
    errors.add(
      `expected 'from' to say which rows may be claimed and 'to' what the claimed one becomes, such as ` +
        `{ from: { state: 'WAITING' }, to: { state: 'RUNNING' } }, got { from: ${formatValue(from)}, to: ${formatValue(to)} }`,
    );
  }
  errors.throwIfAny('Wrong claim');
  checkWhere('from', from);
}

/** @throws LockConfigError if the claimed row could be claimed again, or would be another one */
function checkChange({ columns, name }: EntityMetadata, { from, to }: RowClaim<ObjectLiteral>): void {
  const errors = new OptionErrors();
  const changes = columns.flatMap((column) => {
    const [was, is] = [from, to].map((values): unknown => column.getEntityValue(values));
    return is === undefined || isDeepStrictEqual(was, is) ? [] : [{ column, was, is }];
  });
  // What operators find is not known here.
  if (!changes.some(({ was }) => was !== undefined)) {
    errors.add(
      `expected 'to' to change what 'from' asks for, such as { state: 'RUNNING' } after { state: 'WAITING' }, ` +
        `got ${formatValue(to)} after ${formatValue(from)}: the row could be claimed again`,
    );
  }
  const changed = changes.find(
    ({ column, was, is }) => column.isPrimary && String(was as number) !== String(is as number),
  );
  if (changed) {
    errors.add(
      `expected 'to' to leave the id of ${name} as it is, got ${formatValue(changed.is)} for ${changed.column.propertyPath}`,
    );
  }
  errors.throwIfAny('Wrong claim');
}
