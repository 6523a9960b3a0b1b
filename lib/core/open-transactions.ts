import { AsyncLocalStorage } from 'node:async_hooks';
import { shareAcrossCopies } from './package-copies.js';

/** The part of a database transaction that the core needs. Structural, because the core imports no database library. */
export interface TransactionState {
  readonly isTransactionActive: boolean;
}

/** A data source that may know the transaction in which this asynchronous context runs. */
export interface TransactionSource {
  readonly manager?: { readonly queryRunner?: TransactionState | undefined };
}

const transactionsByLock = shareAcrossCopies(
  'transactions under locks',
  () => new WeakMap<object, Set<TransactionState>>(),
);

/** The lock behind a view of it. */
const lockByView = shareAcrossCopies('locks behind views', () => new WeakMap<object, object>());

const contextTransactions = shareAcrossCopies(
  'transactions of contexts',
  () => new AsyncLocalStorage<readonly TransactionState[]>(),
);

/** Runs the work in a context that knows its transaction: a lock that is acquired there is released before COMMIT. */
export const runInTransactionContext = <T>(transaction: TransactionState, work: () => T): T =>
  contextTransactions.run([...contextTransactionsNow(), transaction], work);

/** Returns the open transactions of this package in which this asynchronous context runs. */
export const contextTransactionsNow = (): readonly TransactionState[] =>
  (contextTransactions.getStore() ?? []).filter(({ isTransactionActive }) => isTransactionActive);

/** Makes transactions recorded for `view` count for the lock. */
export function linkView(view: object, lock: object): void {
  lockByView.set(view, lock);
}

/** Records a transaction in which rows are read or written under the lock. */
export function recordTransaction(view: object, transaction: TransactionState): void {
  const lock = lockByView.get(view) ?? view;
  const recorded = transactionsByLock.get(lock) ?? new Set();
  for (const other of recorded) if (!other.isTransactionActive) recorded.delete(other);
  transactionsByLock.set(lock, recorded.add(transaction));
}

/**
 * Whether a transaction that was used under the lock is still open. If so at the release, its COMMIT comes too late.
 */
export function hasOpenTransaction(lock: object): boolean {
  for (const { isTransactionActive } of transactionsByLock.get(lock) ?? [])
    if (isTransactionActive) return true;
  return false;
}

/** Returns the transactions of these sources, and of this package, in which this asynchronous context runs. */
export function transactionsOf(sources: ReadonlySet<TransactionSource>): readonly TransactionState[] {
  const found = [...contextTransactionsNow()];
  for (const source of sources) {
    const transaction = activeTransactionOf(source);
    if (transaction) found.push(transaction);
  }
  return found;
}

/** Never throws: it only serves a warning, so an error of the source must not fail the lock. */
function activeTransactionOf(source: TransactionSource): TransactionState | undefined {
  try {
    const transaction = source.manager?.queryRunner;
    return transaction?.isTransactionActive === true ? transaction : undefined;
  } catch {
    return undefined;
  }
}
