import type { EntityManager, ObjectLiteral, UpdateQueryBuilder, UpdateResult } from 'typeorm';
import { tryUnlessConflict } from './transactions/conflict-retry.js';

/**
 * Executes the update once, with the listeners and subscribers of the entity. Resolves to whether it has written a row, and to
 * `false` if another transaction was faster.
 */
export async function executeUpdate(
  manager: EntityManager,
  query: UpdateQueryBuilder<ObjectLiteral>,
): Promise<boolean> {
  const update = () => executeWithListeners(manager, query);
  const result = await tryUnlessConflict(manager, update).catch(throwListenerCause);
  return (result?.affected ?? 0) > 0;
}

/**
 * Executes the update. Errors of its listeners and subscribers are thrown as {@link ListenerError}.
 *
 * TypeORM calls the listeners within `execute()`. An error of a listener, for instance a deadlock of a transaction of its own,
 * would then look like one of the update, which may have taken effect.
 */
export async function executeWithListeners(
  manager: EntityManager,
  query: UpdateQueryBuilder<ObjectLiteral>,
): Promise<UpdateResult> {
  const { valuesSet, mainAlias } = query.expressionMap;
  const metadata = mainAlias?.hasMetadata ? mainAlias.metadata : undefined;
  const broadcast = async (event: 'BeforeUpdate' | 'AfterUpdate') => {
    if (metadata)
      await manager.queryRunner?.broadcaster.broadcast(event, metadata, valuesSet).catch(throwListenerError);
  };
  await broadcast('BeforeUpdate');
  const result = await query.callListeners(false).execute();
  if (result.affected) await broadcast('AfterUpdate');
  return result;
}

/** An error of a listener or subscriber. It is no conflict of the write, which may have taken effect. */
class ListenerError extends Error {}

/** @throws ListenerError */
export function throwListenerError(cause: unknown): never {
  throw new ListenerError('A listener has failed.', { cause });
}

/** Throws what the listener has thrown. */
export function throwListenerCause(error: unknown): never {
  throw error instanceof ListenerError ? error.cause : error;
}
