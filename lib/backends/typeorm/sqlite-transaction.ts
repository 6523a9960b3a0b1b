import type { Visit } from './dialect.js';
import { persist } from './persist.js';
import { faultOf } from './sqlite-fault.js';

/**
 * Takes the steps in a transaction that takes the lock first, also if they only read. libsql does not reset a statement
 * that found the database busy. SQLite then commits no other statement by itself: it would answer that it wrote, and lose
 * it, or keep its lock after it has read, so that nobody else could ever commit. Here only `BEGIN` and `COMMIT` can find
 * the database busy: neither keeps a lock then, and the next `BEGIN` resets the last one.
 */
export async function inTransaction<T>(visit: Visit, steps: () => T): Promise<T> {
  await whenNotBusy(visit, () => visit.run('BEGIN IMMEDIATE'));
  try {
    const answers = steps();
    // Readers may still keep a file from being written; then all of it can be tried again.
    await whenNotBusy(visit, () => visit.run('COMMIT'));
    return answers;
  } catch (cause) {
    rollBack(visit);
    throw cause;
  }
}

const whenNotBusy = <T>({ deadline }: Visit, step: () => T): Promise<T> =>
  persist({ faultOf }, deadline, step);

function rollBack({ run }: Visit): void {
  try {
    run('ROLLBACK');
  } catch {
    // Some errors have ended the transaction already.
  }
}
