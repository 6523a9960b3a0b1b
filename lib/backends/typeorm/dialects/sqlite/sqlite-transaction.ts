import { retryWhileBusy } from '../../requests/retry-while-busy.js';
import { type ErrorKind, type Session, driverErrorOf } from '../dialect.js';

/**
 * Runs the steps in a transaction that locks the database first, even if the steps only read. The reason is libsql, which
 * does not reset a statement that found the database busy. After that SQLite no longer commits other statements by itself: a
 * write would report success and be lost, or a read would keep its lock, so that no other process could ever commit. Here
 * only `BEGIN` and `COMMIT` can find the database busy.
 *
 * The whole transaction runs in one turn of the event loop. If it kept its lock for longer, another connection of the same
 * process could wait for the lock: its driver would block the event loop, so the lock could not be released. For this reason
 * a transaction whose `COMMIT` finds readers is rolled back, and repeated later.
 *
 * With WAL a power failure undoes the last commits, unless they were `isDurable`. That harms no lock, because all processes
 * that use the file end with the machine. A claimed tick and the end of a run must survive.
 */
export const inTransaction = <T>(
  { timeout, run }: Session,
  steps: (run: Session['run']) => T,
  { isDurable = false } = {},
): Promise<T> =>
  retryWhileBusy({ classifyError }, timeout, () => {
    timeout.throwIfOver();
    run(`PRAGMA synchronous = ${isDurable || !isWal(run) ? 'FULL' : 'NORMAL'}`);
    run('BEGIN IMMEDIATE');
    try {
      const result = steps(run);
      run('COMMIT');
      return result;
    } catch (cause) {
      rollBack(run);
      throw cause;
    }
  });

/** Without WAL, `synchronous = NORMAL` could corrupt the file at a power failure. */
const isWal = (run: Session['run']) =>
  (run('PRAGMA journal_mode') as [{ readonly journal_mode: string }])[0].journal_mode === 'wal';

function rollBack(run: Session['run']): void {
  try {
    run('ROLLBACK');
  } catch {
    // Some errors roll the transaction back themselves.
  }
}

export function classifyError(cause: unknown): ErrorKind {
  const { code, message } = driverErrorOf(cause);
  if (code.startsWith('SQLITE_BUSY') || code.startsWith('SQLITE_LOCKED')) return 'busy';
  if (code.startsWith('SQLITE_READONLY')) return 'forbidden';
  if (message.includes('database is locked')) return 'busy';
  if (message.includes('no such table')) return 'no table';
  if (message.includes('no such column') || message.includes('ON CONFLICT clause does not match'))
    return 'no column';
  return 'other';
}
