import type { EntityManager, ObjectLiteral, UpdateQueryBuilder, UpdateResult } from 'typeorm';
import { isInTransaction } from './database.js';
import { tryUnlessConflict } from './transactions/conflict-retry.js';
import { isQuerySubscriberError, watchQuerySubscribers } from './transactions/query-subscribers.js';

/**
 * Executes the update once, with the listeners and subscribers of the entity. Resolves to whether it has written a row, and to
 * `false` if another transaction was faster.
 *
 * TypeORM calls the listeners within `execute()`. An error of a listener, for instance a deadlock of a transaction of its own,
 * would then look like one of the update, which may have taken effect.
 */
export async function executeUpdate(
  manager: EntityManager,
  query: UpdateQueryBuilder<ObjectLiteral>,
): Promise<boolean> {
  const callListeners = listenersOf(manager, query);
  await callListeners('BeforeUpdate');
  const result = await tryUnlessConflict(manager, () => execute(manager, query)).catch(throwListenerCause);
  if (!result?.affected) return false;
  await callListeners('AfterUpdate');
  return true;
}

/**
 * Executes the update in a step that is repeated after a conflict, also of a listener, as long as nothing is committed.
 * Resolves to whether it has written a row; only then the listeners after it are called.
 *
 * @param hasWritten is called with whether the database has counted a row: MySQL may not count one whose values do not change
 * @throws ListenerError if a listener fails when the update is committed
 */
export async function executeRepeatedUpdate(
  manager: EntityManager,
  query: UpdateQueryBuilder<ObjectLiteral>,
  hasWritten: (isCounted: boolean) => boolean | Promise<boolean>,
): Promise<boolean> {
  const callListeners = listenersOf(manager, query);
  await callListeners('BeforeUpdate');
  const { affected } = await execute(manager, query);
  if (!(await hasWritten(Boolean(affected)))) return false;
  const calls = callListeners('AfterUpdate');
  await (isInTransaction(manager) ? calls : calls.catch(throwListenerError));
  return true;
}

/** @throws ListenerError if a subscriber to `afterQuery` fails when the update is committed */
async function execute(
  manager: EntityManager,
  query: UpdateQueryBuilder<ObjectLiteral>,
): Promise<UpdateResult> {
  const commitsItself = !isInTransaction(manager);
  if (manager.queryRunner) watchQuerySubscribers(manager.queryRunner);
  try {
    return await query.callListeners(false).execute();
  } catch (cause) {
    if (commitsItself && isQuerySubscriberError(cause)) throwListenerError(cause);
    throw cause;
  }
}

const listenersOf =
  (manager: EntityManager, { expressionMap: { valuesSet, mainAlias } }: UpdateQueryBuilder<ObjectLiteral>) =>
  async (event: 'BeforeUpdate' | 'AfterUpdate'): Promise<void> => {
    if (!mainAlias?.hasMetadata) return;
    await manager.queryRunner?.broadcaster.broadcast(event, mainAlias.metadata, valuesSet);
  };

/** An error of a listener or subscriber after its update was committed. It is no conflict, so the update is not repeated. */
class ListenerError extends Error {}

/** @throws ListenerError */
export function throwListenerError(cause: unknown): never {
  throw new ListenerError('A listener has failed.', { cause });
}

/** Throws what the listener has thrown. */
export function throwListenerCause(error: unknown): never {
  throw error instanceof ListenerError ? error.cause : error;
}
