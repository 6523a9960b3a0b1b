import { systemClock } from '../../../../core/clock.js';

/**
 * What we know of the clock of a server: never an hour of our own wall clock, only how far the server's is ahead of our
 * monotonic one. The truth lies between what a reply tells if all of its way was spent before the server looked at its
 * clock, and what it tells if all was spent after that.
 *
 * @see Cristian, "Probabilistic clock synchronization" (1989)
 */
export class ServerClock {
  /** At most so far ahead: the least that any reply since the clock was set allows. */
  #aheadUs: number | undefined;

  /** Whether anything was heard of it. */
  get isKnown(): boolean {
    return this.#aheadUs !== undefined;
  }

  /** The server's time when it is `atMs` for us. Never too early, and late by no more than a quick round trip. */
  latestUs(atMs: number): number {
    return (this.#aheadUs ?? 0) + atMs * 1_000;
  }

  /** A reply to what was sent then told that time. */
  learn(timeUs: number, sentAtMs: number): void {
    const mostUs = timeUs - sentAtMs * 1_000;
    const leastUs = timeUs - systemClock.monotonicMs() * 1_000;
    // If even the least is more than the most so far, somebody set the clock.
    if (this.#aheadUs === undefined || mostUs < this.#aheadUs || leastUs > this.#aheadUs)
      this.#aheadUs = mostUs;
  }

  set(timeUs: number, sentAtMs: number): void {
    this.#aheadUs = undefined;
    this.learn(timeUs, sentAtMs);
  }
}
