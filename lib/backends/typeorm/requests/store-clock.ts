import { MAX_TIME_US } from '../table/request-row.js';

/** A clock that is slow or was set back makes no refusal that would tell so. */
const TRUSTED_FOR_MS = 30_000;

/** What we know of the database's clock, so that a request which lands late can be refused there. */
export class StoreClock {
  /** How far it is, at most, ahead of our monotonic clock: an answer is read later than it was asked for. */
  #aheadUs: number | undefined;
  #sentAtMs = -Infinity;

  /** Answers may overtake each other: the newest question counts. */
  update(storeUs: number, sentAtMs: number): void {
    if (sentAtMs < this.#sentAtMs) return;
    this.#aheadUs = storeUs - sentAtMs * 1_000;
    this.#sentAtMs = sentAtMs;
  }

  /** It should be asked for, where no answer tells it. */
  needsUpdateAt(nowMs: number): boolean {
    return nowMs - this.#sentAtMs > TRUSTED_FOR_MS;
  }

  /** The database's time at `atMs` of ours: never too early, unless its clock was set forward, which the refusal tells. */
  storeTimeAt(atMs: number): number {
    if (this.#aheadUs === undefined) return MAX_TIME_US;
    return Math.min(Math.ceil(this.#aheadUs + atMs * 1_000), MAX_TIME_US);
  }
}
