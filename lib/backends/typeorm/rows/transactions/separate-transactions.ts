import { AsyncLocalStorage } from 'node:async_hooks';
import type { DataSource, EntityManager } from 'typeorm';
import { shareAcrossCopies } from '../../../../core/package-copies.js';

type RunTransaction = (...args: unknown[]) => Promise<unknown>;

const separated = shareAcrossCopies('separated transactions', () => new WeakSet<EntityManager>());

const outsideOfContexts = AsyncLocalStorage.snapshot();

/**
 * Makes the transactions of an SQLite data source wait for each other. TypeORM alone merges two of different callers: the later one
 * becomes a savepoint of the earlier one on the only connection, and is undone with it. `runInTurn` begins a transaction when it is
 * its turn.
 */
export function separateTransactions(
  dataSource: DataSource,
  runInTurn: (begin: () => Promise<unknown>) => Promise<unknown>,
): void {
  const manager = ownManagerOf(dataSource);
  if (separated.has(manager)) return;
  separated.add(manager);
  const begin = manager.transaction.bind(manager) as RunTransaction;
  const runSeparately: RunTransaction = (...args) =>
    isInTransactionOfContext(dataSource) ? begin(...args) : runInTurn(() => begin(...args));
  manager.transaction = runSeparately;
}

/**
 * The manager that the data source has outside of transactions. In `@Transactional()` of typeorm-transactional, and
 * wherever the application does the same, `dataSource.manager` is that of the transaction.
 */
function ownManagerOf(dataSource: DataSource): EntityManager {
  const manager = outsideOfContexts(() => dataSource.manager);
  // cls-hooked has contexts of its own. typeorm-transactional finds the transaction by a property that this receiver lacks.
  return manager.queryRunner ? Reflect.get(dataSource, 'manager', {}) : manager;
}

/** The first helper may have been called in that transaction, which would then wait for itself. */
const isInTransactionOfContext = ({ manager }: DataSource): boolean =>
  manager.queryRunner?.isTransactionActive === true;
