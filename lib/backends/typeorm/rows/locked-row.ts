import type { EntityManager, EntityMetadata, FindOptionsWhere, ObjectLiteral, QueryRunner } from 'typeorm';
import { LockConfigError } from '../../../core/errors.js';
import { isInProcess, isPostgres } from './database.js';
import { checkIdIsExact, idOf } from './entity-snapshot.js';
import { findRows } from './find-rows.js';
import { takeWriteLock } from './transactions/write-lock.js';
import { mergeDeep } from './where-conditions.js';
import { withWaitLimit } from './wait-limit.js';

/** Which row to lock. */
export interface RowSelection<Entity> {
  readonly metadata: EntityMetadata;
  /** The row, as messages say it. */
  readonly name: string;
  readonly where: FindOptionsWhere<Entity>;
  /** Whether rows that others have locked are left out. */
  readonly skips: boolean;
}

/**
 * Locks one row in the open transaction of the manager, and returns it as it is then; `null` if there is none.
 *
 * @throws LockConfigError if several rows match: which one is meant is not known
 */
export async function lockRow<Entity extends ObjectLiteral>(
  manager: EntityManager,
  { metadata, name, where, skips }: RowSelection<Entity>,
  { waitMs, mayBeginAgain = false }: { readonly waitMs: number; readonly mayBeginAgain?: boolean },
): Promise<Entity | null> {
  if (isInProcess(manager)) {
    const request = { waitMs, database: attachedDatabaseOf(metadata), mayBeginAgain };
    await takeWriteLock(manager.queryRunner as QueryRunner, request);
  }
  const onLocked: 'skip_locked' | 'nowait' | undefined = skips
    ? 'skip_locked'
    : waitMs === 0
      ? 'nowait'
      : undefined;
  const lock = { mode: 'pessimistic_write', ...(onLocked && { onLocked }) } as const;
  const find = () =>
    findRows(manager, metadata, where, {
      // A locked row is left out, so with SKIP LOCKED it is not known how many match.
      take: skips ? 1 : 2,
      ...(!isInProcess(manager) && { lock }),
    });
  // MariaDB fails at SKIP LOCKED with a limit of 0 s: "Got error 1 … during COMMIT". So the shortest limit is 1 s or, on PostgreSQL, 1 ms.
  const [row, another] = await withWaitLimit(manager, skips ? 1 : waitMs, find);
  if (another) throw severalRowsError(name);
  if (!row) return null;
  checkIdIsExact(metadata, row);
  return computesAsOfBeforeWait(manager, metadata) ? readAgain(manager, { metadata, name, where }, row) : row;
}

/** The name of the attached SQLite database that has the table. */
const attachedDatabaseOf = ({ tablePath }: EntityMetadata): string | undefined => {
  const end = tablePath.lastIndexOf('.');
  return end === -1 ? undefined : tablePath.slice(0, end);
};

/** After its wait for a row, PostgreSQL reads the columns of the table anew, but not what the statement computes from other tables. */
const computesAsOfBeforeWait = (manager: EntityManager, { columns, tableType }: EntityMetadata) =>
  isPostgres(manager) && (tableType === 'view' || columns.some(({ isVirtualProperty }) => isVirtualProperty));

/**
 * The locked row as it is now; `null` if it no longer meets the condition.
 *
 * @throws LockConfigError if a view without an id shows several: which of them is locked is not known
 */
async function readAgain<Entity extends ObjectLiteral>(
  manager: EntityManager,
  { metadata, name, where }: Omit<RowSelection<Entity>, 'skips'>,
  row: Entity,
): Promise<Entity | null> {
  // Another row may have begun to meet the condition.
  const id = metadata.primaryColumns.length > 0 ? idOf(metadata, row) : {};
  const locked = mergeDeep(where, id) as FindOptionsWhere<Entity>;
  const [again, another] = await findRows<Entity>(manager, metadata, locked, { take: 2 });
  if (another) throw severalRowsError(name);
  return again ?? null;
}

const severalRowsError = (name: string) =>
  new LockConfigError(
    `Expected a condition that one row meets, got ${name}, which several do. Name the row by its id; with ` +
      `{ onContention: 'skip' } any one of several is taken.`,
  );
