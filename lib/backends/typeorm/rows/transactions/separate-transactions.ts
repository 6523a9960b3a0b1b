import type { EntityManager } from 'typeorm';
import { shareAcrossCopies } from '../../../../core/package-copies.js';

type RunTransaction = (...args: unknown[]) => Promise<unknown>;

const separated = shareAcrossCopies('separated transactions', () => new WeakSet<EntityManager>());

/**
 * Makes the transactions of an SQLite data source wait for each other. TypeORM alone merges two of different callers: the later one
 * becomes a savepoint of the earlier one on the only connection, and is undone with it. `runInTurn` begins a transaction when it is
 * its turn.
 */
export function separateTransactions(
  manager: EntityManager,
  runInTurn: (begin: () => Promise<unknown>) => Promise<unknown>,
): void {
  if (separated.has(manager)) return;
  separated.add(manager);
  const begin = manager.transaction.bind(manager) as RunTransaction;
  const runSeparately: RunTransaction = (...args) => runInTurn(() => begin(...args));
  manager.transaction = runSeparately;
}
