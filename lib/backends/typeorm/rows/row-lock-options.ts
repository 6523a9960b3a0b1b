import { OptionErrors } from '../../../core/option-errors.js';
import { BUILT_IN_LOCK_OPTIONS } from '../../../core/options.js';

export interface RowLockOptions {
  /**
   * How long to wait for the row, in ms. 0 tries once (NOWAIT), `Infinity` waits forever. The database limits the wait:
   * MySQL and MariaDB in whole seconds, rounded up. PostgreSQL starts anew for each wait within the statement, so a
   * caller behind others may wait longer.
   *
   * @default 10_000
   */
  waitMs?: number;
  /**
   * What to do if the row is locked. With `'skip'` (SKIP LOCKED) the call does not wait and takes no `waitMs`. `where` may
   * then match several rows: one that is not locked is taken, and if there is none, the result is `null`. Needs
   * MySQL 8.0 or MariaDB 10.6.
   *
   * @default 'throw'
   */
  onContention?: 'throw' | 'skip';
  /**
   * How often the work may be called if a deadlock or a serialization failure ends its transaction. With more than 1, the
   * work should have no effects outside of the transaction. Only for a transaction that `withRowLock` opens.
   *
   * @default 1
   */
  attempts?: number;
}

export interface ResolvedRowLockOptions {
  readonly waitMs: number;
  readonly skips: boolean;
  readonly attempts: number;
}

/** @throws LockConfigError that lists all errors */
export function resolveRowLockOptions(options: RowLockOptions): ResolvedRowLockOptions {
  const errors = new OptionErrors();
  const { waitMs, onContention, attempts } = errors.object('options', options, [
    'waitMs',
    'onContention',
    'attempts',
  ]);
  errors.durationMs('options.waitMs', waitMs, { max: Infinity });
  errors.oneOf('options.onContention', onContention, ['throw', 'skip']);
  const isValid = Number.isInteger(attempts) && (attempts as number) >= 1;
  errors.expect('options.attempts', attempts, 'a whole number, at least 1', isValid);
  const skips = onContention === 'skip';
  if (skips && waitMs !== undefined && waitMs !== 0) {
    errors.add(`expected no options.waitMs with onContention: 'skip', which does not wait`);
  }
  errors.throwIfAny('Wrong options of withRowLock');
  return {
    waitMs: skips ? 0 : (options.waitMs ?? BUILT_IN_LOCK_OPTIONS.waitMs),
    skips,
    attempts: options.attempts ?? 1,
  };
}
