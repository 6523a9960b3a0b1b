import type { EntityManager, EntityMetadata, ObjectLiteral, UpdateQueryBuilder } from 'typeorm';
import { tryUnlessConflict } from './transactions/conflict-retry.js';

/**
 * Executes the update once, with the listeners and subscribers of the entity. Resolves to whether it has written a row, and to
 * `false` if another transaction was faster.
 *
 * TypeORM calls the listeners within `execute()`. An error of a listener, for instance a deadlock of a transaction of its own,
 * would then look like one of the update, which may have taken effect.
 */
export async function executeUpdate(
  manager: EntityManager,
  metadata: EntityMetadata,
  query: UpdateQueryBuilder<ObjectLiteral>,
): Promise<boolean> {
  const { valuesSet } = query.expressionMap;
  const broadcaster = manager.queryRunner?.broadcaster;
  await broadcaster?.broadcast('BeforeUpdate', metadata, valuesSet);
  const result = await tryUnlessConflict(manager, () => query.callListeners(false).execute());
  if (!result?.affected) return false;
  await broadcaster?.broadcast('AfterUpdate', metadata, valuesSet);
  return true;
}
