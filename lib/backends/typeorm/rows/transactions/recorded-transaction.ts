import type { EntityManager } from 'typeorm';
import type { Fence } from '../../../../core/fence.js';
import { LockConfigError } from '../../../../core/errors.js';
import { contextTransactionsNow, recordTransaction } from '../../../../core/open-transactions.js';
import { dataSourceOf, isInProcess } from '../database.js';

/**
 * Lets the lock warn if the transaction is still open when the lock is released. Not on SQLite, where the only query runner
 * may be in a transaction of another caller.
 */
export function recordTransactionOf(manager: EntityManager, lock: Fence | undefined): void {
  const { queryRunner } = manager;
  if (typeof lock !== 'object' || !queryRunner?.isTransactionActive || isInProcess(manager)) return;
  recordTransaction(lock, queryRunner);
}

/**
 * Outside of the transaction around it, a fenced call would wait for a row that the transaction has locked, while the
 * transaction waits for the call: without end, because the database sees no deadlock.
 *
 * @throws LockConfigError if the call is made in a transaction of this package, with a manager outside of it or of another one
 */
export function throwIfOutsideTransaction(manager: EntityManager): void {
  const dataSource = dataSourceOf(manager);
  // On SQLite all callers share one query runner, and a call waits for 10 s at most.
  if (isInProcess(manager)) return;
  const isAround = (runner: object) => runner !== manager.queryRunner && dataSourceOf(runner) === dataSource;
  if (!contextTransactionsNow().some(isAround)) return;
  throw new LockConfigError(
    'Expected the manager that the work of the transaction received, got one outside of the transaction, which could wait for ' +
      'a row of the transaction without end. Pass that manager to the fenced helpers.',
  );
}
