import { expect } from 'vitest';
import type { DataSource, EntityManager } from 'typeorm';
import { dataSourceOf } from '../../lib/backends/typeorm/rows/database.js';
import { until } from '../support/until.js';

type Rows = readonly Readonly<Record<string, unknown>>[];

/** The settings that limit how long statements of this session wait. */
export async function settingsOf(manager: EntityManager): Promise<unknown> {
  const { type } = dataSourceOf(manager).options;
  if (type === 'postgres') return manager.query<Rows>('SHOW lock_timeout');
  if (type !== 'better-sqlite3')
    return manager.query<Rows>('SELECT @@innodb_lock_wait_timeout AS r, @@lock_wait_timeout AS t');
  const [row] = await manager.query<Rows>('PRAGMA busy_timeout');
  return row!.timeout;
}

/** Ends the connection of the transaction on the server. */
export async function killConnectionOf(database: DataSource, manager: EntityManager): Promise<void> {
  const sql =
    database.options.type === 'postgres' ? 'SELECT pg_backend_pid() AS id' : 'SELECT CONNECTION_ID() AS id';
  const [row] = await manager.query<Rows>(sql);
  await killSession(database, Number(row!.id));
}

/** Ends a connection on the server. */
export const killSession = (database: DataSource, id: number): Promise<unknown> =>
  database.query(
    database.options.type === 'postgres' ? `SELECT pg_terminate_backend(${id})` : `KILL CONNECTION ${id}`,
  );

/** InnoDB shows its transactions as they were, until nobody has read them for 0.1 s. Random, because other specs read them too. */
async function readTransactions(database: DataSource, sql: string): Promise<Rows> {
  if (database.options.type !== 'postgres') await database.query('SELECT SLEEP(0.12 + RAND() * 0.2)');
  return database.query<Rows>(sql);
}

/** The connections whose statement contains the text and waits for a lock. */
export async function waitersFor(database: DataSource, text: string): Promise<number[]> {
  const rows = await readTransactions(
    database,
    database.options.type === 'postgres'
      ? `SELECT pid AS id FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND strpos(query, '${text}') > 0`
      : `SELECT trx_mysql_thread_id AS id FROM information_schema.innodb_trx
         WHERE trx_state = 'LOCK WAIT' AND LOCATE('${text}', trx_query) > 0`,
  );
  return rows.map(({ id }) => Number(id));
}

/** The used part of the pools of `pg` and `mysql2`. */
interface Drivers {
  readonly master?: { readonly _clients: readonly { readonly processID: number }[] };
  readonly pool?: { readonly _allConnections: { toArray(): readonly { readonly threadId: number }[] } };
}

const OPEN = {
  postgres: `SELECT pid AS id FROM pg_stat_activity WHERE state LIKE 'idle in transaction%'`,
  mysql: `SELECT trx_mysql_thread_id AS id FROM information_schema.innodb_trx WHERE trx_mysql_thread_id <> CONNECTION_ID()`,
};

/** Fails if a connection is in a transaction. */
export async function expectIdlePool(database: DataSource): Promise<void> {
  const { type } = database.options;
  if (type === 'better-sqlite3') {
    expect(database.createQueryRunner().isTransactionActive).toBe(false);
    await database.query('BEGIN');
    await database.query('ROLLBACK');
    return;
  }
  const sql = type === 'postgres' ? OPEN.postgres : OPEN.mysql;
  const { master, pool } = database.driver as unknown as Drivers;
  // Other specs use the same server.
  const own = master
    ? master._clients.map(({ processID }) => processID)
    : pool!._allConnections.toArray().map(({ threadId }) => threadId);
  await until(async () =>
    (await readTransactions(database, sql)).every(({ id }) => !own.includes(Number(id))),
  );
}
