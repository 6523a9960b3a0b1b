import { LockTimeoutError, LockUnavailableError } from '../../../core/errors.js';
import { driverErrorOf } from '../dialects/dialect.js';
import { isConflict } from './transactions/conflict-retry.js';
import { isContention } from './wait-limit.js';

interface FailedLock {
  /** What was to be locked, as messages say it. */
  readonly name: string;
  readonly key?: string;
  readonly waitMs: number;
}

const ROLL_BACK =
  'The database may accept no further statement in this transaction, or may have rolled it back: roll it back, and repeat ' +
  'all of it.';

/** Another transaction still has the lock. */
export const contentionError = ({ name, key, waitMs }: FailedLock, cause?: unknown, hint = '') =>
  new LockTimeoutError(
    `Expected to lock ${name} within ${waitMs} ms, but another transaction still has it. Try again later, raise waitMs, or ` +
      `make the transactions shorter.${hint}`,
    { ...(key !== undefined && { key }), cause },
  );

/** The database has chosen this transaction to fail, because a concurrent one was faster. */
export const conflictError = ({ name, key }: Omit<FailedLock, 'waitMs'>, cause: unknown) =>
  new LockUnavailableError(
    `Expected to lock ${name} until COMMIT, but the database has ended the transaction because of a concurrent one (deadlock, ` +
      `serialization failure or old snapshot; see cause). Nothing was written. ${ROLL_BACK}`,
    { ...(key !== undefined && { key }), cause },
  );

/** The error for a caller whose transaction could not lock. Other errors of the database are passed on unchanged. */
export function toLockError(failed: FailedLock, cause: unknown): unknown {
  if (isContention(cause)) return contentionError(failed, cause, ` ${ROLL_BACK}`);
  return isStale(cause) ? conflictError(failed, cause) : cause;
}

/** SQLite: the transaction has read rows that were changed since, so it can never write. */
const isStale = (cause: unknown) => isConflict(cause) || driverErrorOf(cause).code === 'SQLITE_BUSY_SNAPSHOT';
