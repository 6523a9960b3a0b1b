import type { EntityManager } from 'typeorm';
import type { Fence } from '../../../../core/fence.js';
import { recordTransaction } from '../../../../core/open-transactions.js';
import { isInProcess } from '../database.js';

/**
 * Lets the lock warn if the transaction is still open when the lock is released. Not on SQLite, where the only query runner
 * may be in a transaction of another caller.
 */
export function recordTransactionOf(manager: EntityManager, lock: Fence | undefined): void {
  const { queryRunner } = manager;
  if (typeof lock !== 'object' || !queryRunner?.isTransactionActive || isInProcess(manager)) return;
  recordTransaction(lock, queryRunner);
}
