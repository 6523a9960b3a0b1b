import type { EntityManager } from 'typeorm';
import { delay } from '../../../../core/real-time.js';
import { driverErrorOf } from '../../dialects/driver-error.js';
import { backoffMs } from '../../requests/retry-while-busy.js';
import { isInTransaction } from '../database.js';

/** Others who change the same rows do not come in such numbers. */
const MAX_ATTEMPTS = 20;

/** Serialization failure and deadlock of PostgreSQL, deadlock of MySQL, row changed since the snapshot of MariaDB. */
const CONFLICT_CODES = new Set(['40001', '40P01', '1213', '1020']);

/**
 * Whether the database has refused a statement only because another transaction was quicker, and nothing but the
 * statement has to be repeated. In a transaction of the caller only that as a whole can be.
 */
const mayRetry = (cause: unknown, hasTransaction: boolean) =>
  !hasTransaction && CONFLICT_CODES.has(driverErrorOf(cause).code);

/** Takes the step again where another transaction was quicker; then ends with the last error. */
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

/** The same for one attempt: `undefined` where another transaction was quicker. */
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
