import { shared } from './copies.js';

/** What the core knows of a transaction of a database: by shape, as it imports no database library. */
export interface TransactionState {
  readonly isTransactionActive: boolean;
}

/** Of a data source: the transaction in which this asynchronous chain runs, where the source knows that. */
export interface TransactionSource {
  readonly manager?: { readonly queryRunner?: TransactionState | undefined };
}

const used = shared('transactions under locks', () => new WeakMap<object, Set<TransactionState>>());

/** Notes a transaction in which rows are read or written under the lock. */
export function noteTransaction(lock: object, transaction: TransactionState): void {
  const noted = used.get(lock) ?? new Set();
  for (const other of noted) if (!other.isTransactionActive) noted.delete(other);
  used.set(lock, noted.add(transaction));
}

/** Whether a transaction that was used under the lock is still open: at the end of its work it ends after the release. */
export function hasOpenTransaction(lock: object): boolean {
  for (const { isTransactionActive } of used.get(lock) ?? []) if (isTransactionActive) return true;
  return false;
}

/** Whether this asynchronous chain runs in a transaction of one of these sources. */
export function isInTransaction(sources: ReadonlySet<TransactionSource>): boolean {
  for (const source of sources) if (isActive(source)) return true;
  return false;
}

/** It only serves a warning, so a source that throws fails no lock. */
function isActive(source: TransactionSource): boolean {
  try {
    return source.manager?.queryRunner?.isTransactionActive === true;
  } catch {
    return false;
  }
}
