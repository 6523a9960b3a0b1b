import { retryWhileBusy } from '../../requests/retry-while-busy.js';
import type { Session } from '../dialect.js';
import { classifyError } from './sqlite-errors.js';

/**
 * Takes the steps in a transaction that takes the lock first, also if they only read. libsql does not reset a statement
 * that found the database busy. SQLite then commits no other statement by itself: it would answer that it wrote, and lose
 * it, or keep its lock after it has read, so that nobody else could ever commit. Here only `BEGIN` and `COMMIT` can find
 * the database busy.
 *
 * All of it happens in one turn of the event loop. A lock that were kept over a turn would meet the connections of this
 * very process, whose drivers wait for it by blocking the loop that must give it back. So a transaction whose `COMMIT`
 * finds readers is rolled back, and taken again later.
 *
 * With WAL a power cut takes back what was committed last, unless it `isDurable`. That harms no lock, as all processes that
 * use the file end with the machine; a claimed tick and the end of a run must outlive it.
 */
export const inTransaction = <T>(
  { timeout, run }: Session,
  steps: () => T,
  { isDurable = false } = {},
): Promise<T> =>
  retryWhileBusy({ classifyError }, timeout, () => {
    timeout.throwIfOver();
    run(`PRAGMA synchronous = ${isDurable || !isWal(run) ? 'FULL' : 'NORMAL'}`);
    run('BEGIN IMMEDIATE');
    try {
      const result = steps();
      run('COMMIT');
      return result;
    } catch (cause) {
      rollBack(run);
      throw cause;
    }
  });

/** Without it, `NORMAL` could break the file. */
const isWal = (run: Session['run']) =>
  (run('PRAGMA journal_mode') as [{ readonly journal_mode: string }])[0].journal_mode === 'wal';

function rollBack(run: Session['run']): void {
  try {
    run('ROLLBACK');
  } catch {
    // Some errors have ended the transaction already.
  }
}
