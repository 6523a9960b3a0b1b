import type { EntityManager } from 'typeorm';

/** The isolation level of a transaction of PostgreSQL, in its words. The statement takes no snapshot. */
export async function isolationLevelOf(manager: EntityManager): Promise<string> {
  const sql = 'SHOW transaction_isolation';
  const [{ transaction_isolation: level }] = await manager.query<[{ transaction_isolation: string }]>(sql);
  return level;
}
