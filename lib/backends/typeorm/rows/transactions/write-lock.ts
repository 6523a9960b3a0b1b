import type { QueryRunner } from 'typeorm';
import { systemClock } from '../../../../core/clock.js';
import { delay } from '../../../../core/real-timers.js';
import { driverErrorOf } from '../../dialects/dialect.js';
import { isContention } from '../wait-limit.js';
import type { SqliteConnection } from './sqlite-connection.js';

const POLL_MS = 5;

/**
 * A statement that needs the write lock and writes nothing, whatever tables there are: TypeORM has sent BEGIN already, so BEGIN
 * IMMEDIATE comes too late. With `auto_vacuum = INCREMENTAL` it returns at most one free page to the file system.
 */
const writeNothing = (database: string) => `PRAGMA "${database}".incremental_vacuum(1)`;

export interface WriteLockRequest {
  readonly waitMs: number;
  /** The name of an attached database. @default main */
  readonly database?: string | undefined;
  /** The transaction may begin again, unless it may have written: what it has read so far is not used. */
  readonly mayBeginAgain?: boolean;
}

/**
 * Takes SQLite's write lock for the open transaction, unless the transaction has it. The driver would block the whole process
 * while it waits, so this waits between attempts.
 *
 * @throws SQLITE_BUSY if another connection still has it after `waitMs`; SQLITE_BUSY_SNAPSHOT if the transaction has read rows
 *   that were changed since
 */
export async function takeWriteLock(runner: QueryRunner, request: WriteLockRequest): Promise<void> {
  const connection = (await runner.connect()) as SqliteConnection;
  const { waitMs, database = 'main' } = request;
  const endsAtMs = systemClock.monotonicMs() + waitMs;
  for (;;) {
    try {
      tryTakeWriteLock(connection, writeNothing(database));
      return;
    } catch (cause) {
      const mayBeginAgain = request.mayBeginAgain === true && hasOneFile(connection);
      const isStale = mayBeginAgain && isChangedSinceRead(cause);
      if (!isStale && !isContention(cause)) throw cause;
      // Others use the connection too, so what they have read since BEGIN belongs to the transaction. In a rollback journal, it
      // would keep the holder of the lock from its COMMIT.
      if (mayBeginAgain) connection.exec('ROLLBACK; BEGIN');
      if (isStale) continue;
      const leftMs = endsAtMs - systemClock.monotonicMs();
      if (leftMs <= 0) throw cause;
      await delay(Math.min(POLL_MS, leftMs));
    }
  }
}

/**
 * Without the lock of its only file, the transaction has written nothing. To an attached file, or to a temporary table, a
 * subscriber or another caller may have written since BEGIN.
 */
const hasOneFile = (connection: SqliteConnection) =>
  connection.prepare('PRAGMA database_list').all().length === 1;

const isChangedSinceRead = (cause: unknown) => driverErrorOf(cause).code === 'SQLITE_BUSY_SNAPSHOT';

/** Without an `await` inside, because other calls use the same connection. */
function tryTakeWriteLock(connection: SqliteConnection, statement: string): void {
  const { timeout } = connection.prepare('PRAGMA busy_timeout').get() as { timeout: number };
  connection.exec('PRAGMA busy_timeout = 0');
  try {
    connection.exec(statement);
  } finally {
    connection.exec(`PRAGMA busy_timeout = ${timeout}`);
  }
}
