import { FARTHEST_US } from './asked.js';

/** Two clocks drift apart by some ms in that time. */
const OLD_MS = 60_000;

/** What we know of the database's clock, so that a request which lands late can be refused there. */
export class StoreClock {
  /** How far it is, at most, ahead of our monotonic clock: an answer is read later than it was asked for. */
  #aheadUs: number | undefined;
  #oldFromMs = -Infinity;

  /** Whether somebody should look at it again by `atMs` of ours. */
  isOld(atMs: number): boolean {
    return atMs >= this.#oldFromMs;
  }

  learn(storeUs: number | undefined, sentAtMs: number): void {
    if (storeUs === undefined) return;
    this.#aheadUs = storeUs - sentAtMs * 1_000;
    this.#oldFromMs = sentAtMs + OLD_MS;
  }

  /** The database's time at `atMs` of ours: never too early, unless its clock was set, which the next answer tells. */
  at(atMs: number): number {
    if (this.#aheadUs === undefined) return FARTHEST_US;
    return Math.min(Math.ceil(this.#aheadUs + atMs * 1_000), FARTHEST_US);
  }
}
