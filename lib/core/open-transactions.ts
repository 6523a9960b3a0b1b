import { shareAcrossCopies } from './package-copies.js';

/** What the core knows of a transaction of a database: by shape, as it imports no database library. */
export interface TransactionState {
  readonly isTransactionActive: boolean;
}

/** Of a data source: the transaction in which this asynchronous chain runs, where the source knows that. */
export interface TransactionSource {
  readonly manager?: { readonly queryRunner?: TransactionState | undefined };
}

const transactionsByLock = shareAcrossCopies(
  'transactions under locks',
  () => new WeakMap<object, Set<TransactionState>>(),
);

/** By the lock as work sees it: the lease that ends with the release. */
const leaseByView = shareAcrossCopies('leases behind locks', () => new WeakMap<object, object>());

/** What is noted under `view` counts for the lease. */
export function linkViewToLease(view: object, lease: object): void {
  leaseByView.set(view, lease);
}

/** Notes a transaction in which rows are read or written under the lock. */
export function recordTransaction(view: object, transaction: TransactionState): void {
  const lock = leaseByView.get(view) ?? view;
  const recorded = transactionsByLock.get(lock) ?? new Set();
  for (const other of recorded) if (!other.isTransactionActive) recorded.delete(other);
  transactionsByLock.set(lock, recorded.add(transaction));
}

/** Whether a transaction that was used under the lock is still open: at the end of its work it ends after the release. */
export function hasOpenTransaction(lock: object): boolean {
  for (const { isTransactionActive } of transactionsByLock.get(lock) ?? [])
    if (isTransactionActive) return true;
  return false;
}

/** Whether this asynchronous chain runs in a transaction of one of these sources. */
export function isInTransaction(sources: ReadonlySet<TransactionSource>): boolean {
  return transactionsOf(sources).length > 0;
}

/** The transactions of these sources in which this asynchronous chain runs. */
export function transactionsOf(sources: ReadonlySet<TransactionSource>): readonly TransactionState[] {
  const found: TransactionState[] = [];
  for (const source of sources) {
    const transaction = activeTransactionOf(source);
    if (transaction) found.push(transaction);
  }
  return found;
}

/** It only serves a warning, so a source that throws fails no lock. */
function activeTransactionOf(source: TransactionSource): TransactionState | undefined {
  try {
    const transaction = source.manager?.queryRunner;
    return transaction?.isTransactionActive === true ? transaction : undefined;
  } catch {
    return undefined;
  }
}
