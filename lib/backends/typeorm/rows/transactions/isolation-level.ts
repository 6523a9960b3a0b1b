import type { EntityManager } from 'typeorm';
import { dataSourceOf } from '../database.js';

/** The isolation level that the next transaction of PostgreSQL has unless it says another one, in the words of PostgreSQL. */
export async function defaultIsolationLevelOf(manager: EntityManager): Promise<string> {
  const { isolationLevel } = dataSourceOf(manager).options as { isolationLevel?: string };
  if (isolationLevel !== undefined) return isolationLevel.toLowerCase();
  const sql = 'SHOW default_transaction_isolation';
  const [{ default_transaction_isolation: level }] =
    await manager.query<[{ default_transaction_isolation: string }]>(sql);
  return level;
}

/** The isolation level of a transaction of PostgreSQL, in its words. The statement takes no snapshot. */
export async function isolationLevelOf(manager: EntityManager): Promise<string> {
  const sql = 'SHOW transaction_isolation';
  const [{ transaction_isolation: level }] = await manager.query<[{ transaction_isolation: string }]>(sql);
  return level;
}
