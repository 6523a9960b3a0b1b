import { expect } from '@jest/globals';
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
  const isPostgres = database.options.type === 'postgres';
  const sql = isPostgres ? 'SELECT pg_backend_pid() AS id' : 'SELECT CONNECTION_ID() AS id';
  const [row] = await manager.query<Rows>(sql);
  const id = Number(row!.id);
  await database.query(isPostgres ? `SELECT pg_terminate_backend(${id})` : `KILL CONNECTION ${id}`);
}

/** Transactions of other sessions, without those of the servers themselves. */
const OPEN = {
  postgres: `SELECT pid FROM pg_stat_activity
    WHERE datname = current_database() AND state LIKE 'idle in transaction%'`,
  mysql: `SELECT trx_mysql_thread_id FROM information_schema.innodb_trx WHERE trx_mysql_thread_id <> CONNECTION_ID()`,
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
  // InnoDB shows transactions as they were up to 0.1 s ago.
  if (type !== 'postgres') await database.query('SELECT SLEEP(0.2)');
  await until(async () => (await database.query<Rows>(sql)).length === 0);
}
