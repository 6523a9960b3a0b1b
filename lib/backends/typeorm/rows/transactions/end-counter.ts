import { transactionEndedError } from './transaction-errors.js';

/** Counts, by depth, how many transactions of a query runner have ended, and how many savepoints were rolled back. */
export class EndCounter {
  readonly #counts: number[] = [];

  add(depth: number): void {
    this.#counts[depth] = (this.#counts[depth] ?? 0) + 1;
  }

  /** Returns a check that throws a `LockConfigError` if a transaction of this depth, or one around it, has ended since. */
  createCheck(depth: number): () => void {
    const countEnds = () => this.#counts.slice(0, depth + 1).reduce((sum, ends) => sum + ends, 0);
    const before = countEnds();
    return () => {
      if (countEnds() !== before) throw transactionEndedError();
    };
  }
}
