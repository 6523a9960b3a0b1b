import {
  type EntityManager,
  type EntityMetadata,
  type EntityTarget,
  type FindOptionsOrder,
  type FindOptionsWhere,
  type ObjectLiteral,
} from 'typeorm';
import { LockTimeoutError } from '../../../core/errors.js';
import { formatValue } from '../../../core/format.js';
import { OptionErrors } from '../../../core/option-errors.js';
import { delay } from '../../../core/real-timers.js';
import { backoffMs } from '../connections/session.js';
import { readClaimed } from './claimed-row.js';
import { isSameValue } from './comparable-value.js';
import {
  type Database,
  durableCommitCondition,
  entityMetadataOf,
  managerOf,
  newestRowsOptions,
} from './database.js';
import { idOf, requireId, throwIfVersionGiven } from './entity-snapshot.js';
import { isFencingToken, tokenGivenError } from './fencing-token.js';
import { findRows } from './find-rows.js';
import type { RowValues } from './fenced-update.js';
import { retryOnConflict } from './transactions/conflict-retry.js';
import { onPrimary } from './transactions/primary-connection.js';
import { executeUpdate } from './update-listeners.js';
import {
  checkOwnColumns,
  checkWhere,
  copyWhere,
  excludeSoftDeleted,
  isObject,
  mergeDeep,
} from './where-conditions.js';
import { writtenValues } from './written-values.js';

export interface RowClaim<Entity extends ObjectLiteral> {
  /** Which rows may be claimed, by their own columns: for instance all rows in one state, or one row by its id and state. */
  from: FindOptionsWhere<Entity>;
  /** The new values of the claimed row. With them, the row must no longer match `from`. They must not change its id. */
  to: RowValues<Entity>;
  /** Which row to claim first. By default a random one, so that many workers do not try to claim the same row. */
  order?: FindOptionsOrder<Entity>;
}

/** How many rows one read returns. */
const MAX_CANDIDATES = 20;
/** More than concurrent workers are expected to use up. Without a limit, a trigger that reverts the claim would loop for ever. */
const MAX_ATTEMPTS = 20;

/**
 * Moves one row from one state to the next, exactly once: if several workers try to claim a row, one gets it, and the
 * others get another row or `null`. Use it for tasks that many workers share.
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
 * A claim does not expire: if a worker dies, its row stays claimed. So does the row of a claim whose reply was lost: it rejects
 * with the error of the driver, but may take effect, also later. Find the row by a value in `to` that only this claim writes,
 * such as a random `worker`.
 *
 * Claim outside of transactions. Inside one, the claim takes effect when the transaction commits, and other workers that try to
 * claim the row wait until then.
 *
 * Outside of a transaction, a serialization failure or a deadlock means that another worker was faster, and the next
 * row is tried. `from` can use columns of the row itself, and the id of a related row.
 *
 * @returns the row after the claim; `null` if no row matches `from`
 * @throws LockTimeoutError if other workers were faster at each of 20 attempts
 * @throws LockConfigError if the claim is wrong, for instance because the claimed row would still match `from`
 */
export async function claimRow<Entity extends ObjectLiteral>(
  database: Database,
  entity: EntityTarget<Entity>,
  claim: RowClaim<Entity>,
): Promise<Entity | null> {
  const metadata = entityMetadataOf(managerOf(database), entity);
  checkClaim(metadata, claim);
  return onPrimary(database, async (manager) => {
    for (let attempt = 1; attempt <= MAX_ATTEMPTS; attempt += 1) {
      const candidates = await retryOnConflict(manager, () =>
        findCandidates(manager, metadata, claim, attempt > 1),
      );
      if (candidates.length === 0) return null;
      for (const id of candidates) {
        if (await tryClaim(manager, metadata, claim, id)) return readClaimed<Entity>(manager, metadata, id);
      }
      await delay(backoffMs(attempt));
    }
    throw new LockTimeoutError(
      `Expected to claim a row of ${metadata.name} ${formatValue(claim.from)}, but others were quicker with each row that was ` +
        `found in ${MAX_ATTEMPTS} looks. Try again later.`,
    );
  });
}

/** The ids of some rows that can probably be claimed. */
async function findCandidates(
  manager: EntityManager,
  metadata: EntityMetadata,
  { from, order }: RowClaim<ObjectLiteral>,
  isRetry: boolean,
): Promise<ObjectLiteral[]> {
  const readOptions = isRetry ? newestRowsOptions(manager) : {};
  const ids = metadata.primaryColumns.map((column) => column.createValueMap(true));
  const rows = await findRows(manager, metadata, from, {
    select: ids.reduce(mergeDeep, {}),
    ...(order && { order }),
    // A locked row cannot be claimed by others until the transaction ends, so only one is locked.
    take: readOptions.lock ? 1 : MAX_CANDIDATES,
    ...readOptions,
  });
  const found = rows.map((row) => idOf(metadata, row));
  const first = order ? 0 : Math.floor(Math.random() * found.length);
  return [...found.slice(first), ...found.slice(0, first)];
}

/** Resolves to whether the row still matched. The database lets only one of several concurrent claims match it. */
async function tryClaim(
  manager: EntityManager,
  metadata: EntityMetadata,
  { from, to }: RowClaim<ObjectLiteral>,
  id: ObjectLiteral,
): Promise<boolean> {
  const query = manager
    .createQueryBuilder()
    .update(metadata.target)
    .set(writtenValues(metadata, to))
    .where(copyWhere(from))
    .andWhere(id);
  excludeSoftDeleted(query, metadata, from);
  return executeUpdate(manager, query.andWhere(durableCommitCondition(manager)));
}

/** @throws LockConfigError */
function checkClaim(metadata: EntityMetadata, claim: RowClaim<ObjectLiteral>): void {
  checkParts(claim, metadata);
  requireId(metadata);
  checkOwnColumns('from', metadata, claim.from);
  if (claim.order) checkOwnColumns('order', metadata, claim.order);
  checkChange(metadata, claim);
}

/** @throws LockConfigError */
function checkParts(claim: unknown, metadata: EntityMetadata): void {
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
  checkWhere('from', from, metadata);
}

/** @throws LockConfigError if the row would still match `from` after the claim, or would get another id */
function checkChange(metadata: EntityMetadata, { from, to }: RowClaim<ObjectLiteral>): void {
  const { columns, name } = metadata;
  const errors = new OptionErrors();
  const changes = columns.flatMap((column) => {
    const [was, is] = [from, to].map((values): unknown => column.getEntityValue(values));
    return is === undefined || isSameValue(was, is) ? [] : [{ column, was, is }];
  });
  const token = changes.find(({ column }) => isFencingToken(column));
  if (token) throw tokenGivenError(token.column.propertyPath);
  throwIfVersionGiven(metadata, to);
  // A column with an operator counts as changed, because it is not known here which values the operator matches. TypeORM
  // does not write columns with `update: false`.
  if (!changes.some(({ column, was }) => was !== undefined && column.isUpdate)) {
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
