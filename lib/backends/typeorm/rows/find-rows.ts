import type {
  EntityManager,
  EntityMetadata,
  FindManyOptions,
  FindOptionsWhere,
  ObjectLiteral,
} from 'typeorm';
import { UNCACHED } from './database.js';
import { copyWhere, excludeSoftDeleted } from './where-conditions.js';

/**
 * Reads rows by conditions on their own columns, without a join. `manager.find()` joins the related row for a condition on its
 * id. It would then lock that row too, on PostgreSQL all rows that match, and leave out those whose related row is deleted
 * softly. Relations are not loaded. Rows that are deleted softly are left out, unless a condition is about that column.
 */
export async function findRows<Entity extends ObjectLiteral>(
  manager: EntityManager,
  metadata: EntityMetadata,
  where: FindOptionsWhere<Entity>,
  options: Omit<FindManyOptions<Entity>, 'where'>,
): Promise<Entity[]> {
  const query = manager
    .createQueryBuilder<Entity>(metadata.target as new () => Entity, 'found')
    .setFindOptions({ loadEagerRelations: false, withDeleted: true, ...UNCACHED, ...options })
    .andWhere(copyWhere(where));
  excludeSoftDeleted(query, metadata, where);
  const rows = await query.getMany();
  for (const row of rows) forgetInitialRelations(metadata, row);
  return rows;
}

/**
 * An initialiser of the class may have set a relation to null, which was not loaded. A `save()` of the row would take that for a
 * change, and remove the relation.
 */
export function forgetInitialRelations(metadata: EntityMetadata, row: ObjectLiteral): void {
  for (const relation of metadata.findInheritanceMetadata(row).relations)
    if (!relation.isLazy && relation.getEntityValue(row) === null) relation.setEntityValue(row, undefined);
}
