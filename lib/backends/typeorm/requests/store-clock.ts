import { MAX_TIME_US } from '../table/lock-row.js';

/** The estimate expires, because no refusal would show that the database's clock runs slow or was set back. */
const TRUSTED_FOR_MS = 30_000;

/** Estimates the database's clock, so that the database can refuse a request that arrives too late. */
export class StoreClock {
  /** Upper bound of how far the database's clock is ahead of our monotonic clock: it was read after the request was sent. */
  #aheadUs: number | undefined;
  #sentAtMs = -Infinity;

  /** Results may overtake each other, so the request that was sent last counts. */
  update(storeUs: number, sentAtMs: number): void {
    if (sentAtMs < this.#sentAtMs) return;
    this.#aheadUs = storeUs - sentAtMs * 1_000;
    this.#sentAtMs = sentAtMs;
  }

  /** Whether the time should be read separately, because no result has contained it lately. */
  needsUpdateAt(nowMs: number): boolean {
    return nowMs - this.#sentAtMs > TRUSTED_FOR_MS;
  }

  /**
   * The database's time at `atMs` of our monotonic clock. Never too early, unless the database's clock was set forward; the
   * refusal that follows carries the new time.
   */
  storeTimeAt(atMs: number): number {
    if (this.#aheadUs === undefined) return MAX_TIME_US;
    return Math.min(Math.ceil(this.#aheadUs + atMs * 1_000), MAX_TIME_US);
  }
}
