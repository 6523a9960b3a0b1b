import { type DataSource, EntityManager } from 'typeorm';

/** A transaction as a query runner of the application and `save()` begin one: `transaction()` of the data source may be another. */
export const transactionOnRunner = <T>(
  { manager }: DataSource,
  work: (manager: EntityManager) => Promise<T>,
): Promise<T> => Reflect.apply(EntityManager.prototype.transaction, manager, [work]) as Promise<T>;
