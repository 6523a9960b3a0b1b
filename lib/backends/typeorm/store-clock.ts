import { FARTHEST_US } from './asked.js';

/** A clock that is slow or was set back makes no refusal that would tell so. */
const TRUSTED_FOR_MS = 30_000;

/** What we know of the database's clock, so that a request which lands late can be refused there. */
export class StoreClock {
  /** How far it is, at most, ahead of our monotonic clock: an answer is read later than it was asked for. */
  #aheadUs: number | undefined;
  #askedAtMs = -Infinity;

  /** Answers may overtake each other: the newest question counts. */
  learn(storeUs: number, askedAtMs: number): void {
    if (askedAtMs < this.#askedAtMs) return;
    this.#aheadUs = storeUs - askedAtMs * 1_000;
    this.#askedAtMs = askedAtMs;
  }

  /** It should be asked for, where no answer tells it. */
  isDueAt(nowMs: number): boolean {
    return nowMs - this.#askedAtMs > TRUSTED_FOR_MS;
  }

  /** The database's time at `atMs` of ours: never too early, unless its clock was set forward, which the refusal tells. */
  at(atMs: number): number {
    if (this.#aheadUs === undefined) return FARTHEST_US;
    return Math.min(Math.ceil(this.#aheadUs + atMs * 1_000), FARTHEST_US);
  }
}
