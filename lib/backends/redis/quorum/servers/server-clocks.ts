import { systemClock } from '../../../../core/clock.js';

/** How far the newest ballot may be ahead of the servers' clocks, as part of the ballot tolerance. */
const AHEAD_RATIO = 0.1;

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

/** The ballots of one process. */
export class Ballots {
  readonly #servers: readonly { readonly clock: ServerClock }[];
  readonly #toleranceUs: number;
  #newestUs = 0;

  /** Servers refuse a ballot that differs from their clock by more than `toleranceUs`. */
  constructor(servers: readonly { readonly clock: ServerClock }[], toleranceUs: number) {
    this.#servers = servers;
    this.#toleranceUs = toleranceUs;
  }

  /** The time of the median server, so that one wrong clock has no influence. */
  get nowUs(): number {
    const nowMs = systemClock.monotonicMs();
    const known = this.#servers.filter(({ clock }) => clock.isKnown);
    return Math.floor(medianOf(known.map(({ clock }) => clock.latestUs(nowMs))));
  }

  /** The next ballot: the time now, and more than the largest token that the servers are known to have granted. */
  nextUs(moreThanUs: number): number {
    const { nowUs } = this;
    // So far ahead only if the servers' clocks were set back. They would soon refuse larger ballots, so it starts over.
    const isAhead = this.#newestUs - nowUs > this.#toleranceUs * AHEAD_RATIO;
    this.#newestUs = isAhead ? nowUs : Math.max(this.#newestUs + 1, nowUs);
    return Math.max(this.#newestUs, moreThanUs + 1);
  }
}

/** The lower median; 0 for no values. */
export function medianOf(values: readonly number[]): number {
  const sorted = [...values].sort((one, other) => one - other);
  return sorted[(sorted.length - 1) >> 1] ?? 0;
}
