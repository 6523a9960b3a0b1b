import { systemClock } from '../../../../core/clock.js';

/**
 * An estimate of a server's clock: how far it is ahead of the monotonic clock of this process. No wall clock of this machine
 * is used. One reply bounds the difference: the server read its clock between the sending of the request and the arrival of
 * the reply.
 *
 * @see Cristian, "Probabilistic clock synchronization" (1989)
 */
export class ServerClock {
  /** The smallest upper bound of all replies since the clock was last set. */
  #aheadUs: number | undefined;

  /** Whether there is an estimate. */
  get isKnown(): boolean {
    return this.#aheadUs !== undefined;
  }

  /** The server's time at `atMs` of our clock. Never too early, and too late by at most the shortest round trip. */
  latestUs(atMs: number): number {
    return (this.#aheadUs ?? 0) + atMs * 1_000;
  }

  /** Learns from a reply with the server's time, to a request that was sent at `sentAtMs`. */
  learn(timeUs: number, sentAtMs: number): void {
    const mostUs = timeUs - sentAtMs * 1_000;
    const leastUs = timeUs - systemClock.monotonicMs() * 1_000;
    // If the lower bound is above the known upper bound, the server's clock was set forward.
    if (this.#aheadUs === undefined || mostUs < this.#aheadUs || leastUs > this.#aheadUs)
      this.#aheadUs = mostUs;
  }

  /** Starts over, for a new connection. */
  set(timeUs: number, sentAtMs: number): void {
    this.#aheadUs = undefined;
    this.learn(timeUs, sentAtMs);
  }
}
