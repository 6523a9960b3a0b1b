import type {
  EntityManager,
  EntityMetadata,
  FindManyOptions,
  FindOptionsWhere,
  ObjectLiteral,
} from 'typeorm';
import { UNCACHED } from './database.js';
import { copyWhere } from './where-conditions.js';

/**
 * Reads rows by conditions on their own columns, without a join. `manager.find()` joins the related row for a condition on its
 * id. It would then lock that row too, on PostgreSQL all rows that match, and leave out those whose related row is deleted
 * softly. Relations are not loaded.
 */
export function findRows<Entity extends ObjectLiteral>(
  manager: EntityManager,
  { target }: EntityMetadata,
  where: FindOptionsWhere<Entity>,
  options: Omit<FindManyOptions<Entity>, 'where'>,
): Promise<Entity[]> {
  return manager
    .createQueryBuilder<Entity>(target as new () => Entity, 'found')
    .setFindOptions({ loadEagerRelations: false, ...UNCACHED, ...options })
    .andWhere(copyWhere(where))
    .getMany();
}
