import type { EntityManager } from 'typeorm';
import { delay } from '../../../core/real-time.js';
import { errorOf } from '../error-of.js';
import { pauseMs } from '../persist.js';
import { isInTransaction } from './database.js';

/** Others who change the same rows do not come in such numbers. */
const MOST_ATTEMPTS = 20;

/** Serialization failure and deadlock of PostgreSQL, deadlock of MySQL, row changed since the snapshot of MariaDB. */
const CONFLICTS = new Set(['40001', '40P01', '1213', '1020']);

/**
 * Whether the database has refused a statement only because another transaction was quicker, and nothing but the
 * statement has to be repeated. In a transaction of the caller only that as a whole can be.
 */
const mayRepeat = (cause: unknown, isOpen: boolean) => !isOpen && CONFLICTS.has(errorOf(cause).code);

/** Takes the step again where another transaction was quicker; then ends with the last error. */
export async function repeatOnConflict<T>(manager: EntityManager, step: () => Promise<T>): Promise<T> {
  const isOpen = isInTransaction(manager);
  for (let attempt = 1; ; attempt += 1) {
    try {
      return await step();
    } catch (cause) {
      if (attempt === MOST_ATTEMPTS || !mayRepeat(cause, isOpen)) throw cause;
      await delay(pauseMs(attempt));
    }
  }
}

/** The same for one attempt: `undefined` where another transaction was quicker. */
export async function unlessConflict<T>(
  manager: EntityManager,
  step: () => Promise<T>,
): Promise<T | undefined> {
  const isOpen = isInTransaction(manager);
  try {
    return await step();
  } catch (cause) {
    if (mayRepeat(cause, isOpen)) return undefined;
    throw cause;
  }
}
