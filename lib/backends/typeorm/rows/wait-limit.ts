import type { EntityManager } from 'typeorm';
import { driverErrorOf } from '../dialects/dialect.js';
import { isInProcess, isMysql } from './database.js';

/** PostgreSQL: lock not available. MySQL, MariaDB: lock wait timeout, NOWAIT. SQLite: another connection writes. */
const CONTENTION_CODES = new Set(['55P03', '1205', '3572', 'SQLITE_BUSY']);

/** Whether a statement failed because another transaction has the lock, and the time to wait for it was over. */
export const isContention = (cause: unknown): boolean => CONTENTION_CODES.has(driverErrorOf(cause).code);

/**
 * Executes statements that wait for other transactions at most `waitMs`. The session has its own settings again when the next
 * statement is executed. For SQLite, see `takeWriteLock`.
 */
export function withWaitLimit<T>(manager: EntityManager, waitMs: number, step: () => Promise<T>): Promise<T> {
  if (isInProcess(manager)) return step();
  return isMysql(manager) ? withMysqlLimit(manager, waitMs, step) : withPostgresLimit(manager, waitMs, step);
}

/** The largest value of `lock_timeout`, which is 24 days. */
const MAX_POSTGRES_MS = 2 ** 31 - 1;

/**
 * After an error only ROLLBACK is possible, which also undoes the setting. SHOW and SET take no snapshot, so the step sees what was
 * committed before it began, also from REPEATABLE READ on.
 */
async function withPostgresLimit<T>(
  manager: EntityManager,
  waitMs: number,
  step: () => Promise<T>,
): Promise<T> {
  const [{ lock_timeout: before }] = await manager.query<[{ lock_timeout: string }]>('SHOW lock_timeout');
  // 0 means no limit.
  const limit = waitMs === Infinity ? 0 : Math.min(Math.max(1, Math.ceil(waitMs)), MAX_POSTGRES_MS);
  await manager.query(`SET LOCAL lock_timeout = ${limit}`);
  const result = await step();
  await manager.query(`SET LOCAL lock_timeout = '${before}'`);
  return result;
}

/** The largest value of `lock_wait_timeout`, which is a year. */
const MAX_MYSQL_S = 31_536_000;

interface MysqlSettings {
  readonly row_limit: string;
  readonly table_limit: string;
  readonly version: string;
}

/** The settings of the session, because MySQL has none of a transaction. Reading them opens no snapshot. */
const READ_MYSQL_SETTINGS = `SELECT CAST(@@innodb_lock_wait_timeout AS CHAR) AS row_limit,
  CAST(@@lock_wait_timeout AS CHAR) AS table_limit, @@version AS version`;

async function withMysqlLimit<T>(manager: EntityManager, waitMs: number, step: () => Promise<T>): Promise<T> {
  const [{ row_limit: row, table_limit: table, version }] =
    await manager.query<[MysqlSettings]>(READ_MYSQL_SETTINGS);
  // In MySQL a limit of 0 s is an error.
  const minS = version.includes('MariaDB') ? 0 : 1;
  const limitS = Math.min(Math.max(minS, Math.ceil(waitMs / 1_000)), MAX_MYSQL_S);
  const set = (rowLimit: number | string, tableLimit: number | string) =>
    manager.query(
      `SET SESSION innodb_lock_wait_timeout = ${rowLimit}, SESSION lock_wait_timeout = ${tableLimit}`,
    );
  let result: T;
  try {
    await set(limitS, limitS);
    result = await step();
  } catch (cause) {
    // If the connection was lost, there is no session any more, and the first error says so.
    await set(row, table).catch(() => undefined);
    throw cause;
  }
  await set(row, table);
  return result;
}
