import type { EntityManager } from 'typeorm';
import { delay } from '../../../../core/real-timers.js';
import { driverErrorOf } from '../../dialects/dialect.js';
import { backoffMs } from '../../connections/session.js';
import { isInTransaction } from '../database.js';

/** Enough for any number of concurrent writers that is to be expected. */
export const MAX_ATTEMPTS = 20;

/** PostgreSQL: serialization failure, deadlock. MySQL: deadlock. MariaDB: row changed since the snapshot. */
const CONFLICT_CODES = new Set(['40001', '40P01', '1213', '1020']);

/** Whether a statement or COMMIT failed because of a concurrent transaction, and its transaction can be repeated. */
export const isConflict = (cause: unknown): boolean => CONFLICT_CODES.has(driverErrorOf(cause).code);

/**
 * Whether the statement failed only because another transaction was faster, and can be repeated by itself. In a transaction
 * of the caller only the whole transaction can be repeated.
 */
const mayRetry = (cause: unknown, hasTransaction: boolean) => !hasTransaction && isConflict(cause);

/** Repeats the step if another transaction was faster, up to 20 times in all. Then rejects with the last error. */
export async function retryOnConflict<T>(manager: EntityManager, step: () => Promise<T>): Promise<T> {
  const hasTransaction = isInTransaction(manager);
  for (let attempt = 1; ; attempt += 1) {
    try {
      return await step();
    } catch (cause) {
      if (attempt === MAX_ATTEMPTS || !mayRetry(cause, hasTransaction)) throw cause;
      await delay(backoffMs(attempt));
    }
  }
}

/** One attempt. Resolves to `undefined` if another transaction was faster. */
export async function tryUnlessConflict<T>(
  manager: EntityManager,
  step: () => Promise<T>,
): Promise<T | undefined> {
  const hasTransaction = isInTransaction(manager);
  try {
    return await step();
  } catch (cause) {
    if (mayRetry(cause, hasTransaction)) return undefined;
    throw cause;
  }
}
