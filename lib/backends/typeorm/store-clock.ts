import { FARTHEST_US } from './asked.js';

/** What we know of the database's clock, so that a request which lands late can be refused there. */
export class StoreClock {
  /** How far it is, at most, ahead of our monotonic clock: an answer is read later than it was asked for. */
  #aheadUs: number | undefined;

  learn(storeUs: number | undefined, sentAtMs: number): void {
    if (storeUs !== undefined) this.#aheadUs = storeUs - sentAtMs * 1_000;
  }

  /** The database's time at `atMs` of ours: never too early, unless its clock was set, which the refusal tells. */
  at(atMs: number): number {
    if (this.#aheadUs === undefined) return FARTHEST_US;
    return Math.min(Math.ceil(this.#aheadUs + atMs * 1_000), FARTHEST_US);
  }
}
