import type { QueryRunner } from 'typeorm';
import { systemClock } from '../../../../core/clock.js';
import { delay } from '../../../../core/real-timers.js';
import { isContention } from '../wait-limit.js';

const POLL_MS = 5;

/** The used part of a `better-sqlite3` database, or of a driver with the same interface. */
interface SqliteConnection {
  prepare(sql: string): { get(): unknown };
  exec(sql: string): unknown;
}

/**
 * A statement that needs the write lock and writes nothing, whatever tables there are: TypeORM has sent BEGIN already, so BEGIN
 * IMMEDIATE comes too late. With `auto_vacuum = INCREMENTAL` it returns at most one free page to the file system.
 */
const WRITE_NOTHING = 'PRAGMA incremental_vacuum(1)';

/**
 * Takes SQLite's write lock for the open transaction, unless the transaction has it. The driver would block the whole process
 * while it waits, so this waits between attempts.
 *
 * @throws SQLITE_BUSY if another connection still has it after `waitMs`; SQLITE_BUSY_SNAPSHOT if the transaction has read rows
 *   that were changed since
 */
export async function takeWriteLock(runner: QueryRunner, waitMs: number): Promise<void> {
  const connection = (await runner.connect()) as SqliteConnection;
  const endsAtMs = systemClock.monotonicMs() + waitMs;
  for (;;) {
    try {
      tryTakeWriteLock(connection);
      return;
    } catch (cause) {
      const leftMs = endsAtMs - systemClock.monotonicMs();
      if (!isContention(cause) || leftMs <= 0) throw cause;
      await delay(Math.min(POLL_MS, leftMs));
    }
  }
}

/** Without an `await` inside, because other calls use the same connection. */
function tryTakeWriteLock(connection: SqliteConnection): void {
  const { timeout } = connection.prepare('PRAGMA busy_timeout').get() as { timeout: number };
  connection.exec('PRAGMA busy_timeout = 0');
  try {
    connection.exec(WRITE_NOTHING);
  } finally {
    connection.exec(`PRAGMA busy_timeout = ${timeout}`);
  }
}
