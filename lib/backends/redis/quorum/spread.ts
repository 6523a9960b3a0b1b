import { type Timer, systemClock } from '../../../core/clock.js';
import { copyTo } from './copies.js';
import type { LateVotes } from './late-votes.js';
import { type AcquireTerms, type Ballot, leftOf, rejoinTerms } from './node-call.js';
import type { Voters } from './voters.js';

/** A lock that a majority has, and some servers were not asked for. */
interface BareLock {
  readonly key: string;
  readonly holder: string;
  readonly terms: AcquireTerms;
  readonly ballot: Ballot;
  /** The servers that know nothing of it, in bits. */
  readonly unasked: number;
  /** When it was asked for. */
  readonly sentAtMs: number;
}

/** So long a lock may be held by a bare majority. Many are given back sooner. */
const SPREAD_AFTER_MS = 20;
const MOST_AT_ONCE = 200;

/**
 * Takes locks that were won with the votes of a bare majority to the other servers as well, so that they outlive the loss
 * of some of them; and spares these servers those locks that are held for a moment only.
 *
 * Asking no more servers than it takes is known as thrifty from quorum protocols.
 *
 * @see Moraru, Andersen, Kaminsky, "There Is More Consensus in Egalitarian Parliaments" (2013)
 */
export class Spread {
  readonly #voters: Voters;
  readonly #late: LateVotes;
  /** By holder, the oldest first. */
  readonly #bare = new Map<string, BareLock>();
  #timer: Timer | undefined;

  constructor(voters: Voters, late: LateVotes) {
    this.#voters = voters;
    this.#late = late;
  }

  add(lock: BareLock): void {
    this.#bare.set(lock.holder, lock);
    this.#wait();
  }

  /** The servers that know nothing of the lock and will be told, in bits. */
  unaskedOf(holder: string): number {
    return this.#bare.get(holder)?.unasked ?? 0;
  }

  /** The lock ends: the servers that know nothing of it, in bits; none if it may have lapsed. */
  take(holder: string): number {
    const lock = this.#bare.get(holder);
    if (!lock) return 0;
    this.#bare.delete(holder);
    return systemClock.monotonicMs() < untilMsOf(lock) ? lock.unasked : 0;
  }

  close(): void {
    this.#timer?.cancel();
    this.#timer = undefined;
    this.#bare.clear();
  }

  #wait(): void {
    this.#timer ??= systemClock.after(SPREAD_AFTER_MS, () => {
      this.#timer = undefined;
      this.#spread();
      if (this.#bare.size > 0) this.#wait();
    });
  }

  #spread(): void {
    const nowMs = systemClock.monotonicMs();
    const due: BareLock[] = [];
    for (const lock of this.#bare.values()) {
      if (lock.sentAtMs + SPREAD_AFTER_MS > nowMs || due.length === MOST_AT_ONCE) break;
      this.#bare.delete(lock.holder);
      // As long as it surely is held: then no other grant can have come between.
      if (nowMs < untilMsOf(lock)) due.push(lock);
    }
    for (const voter of this.#voters.all) {
      const its = due.filter(({ unasked }) => unasked & voter.bit);
      if (its.length === 0) continue;
      const requests = its.map(({ key, holder, terms, ballot, sentAtMs }) => {
        const leaseMs = leftOf(terms.leaseMs, nowMs - sentAtMs);
        return { key, holder, terms: rejoinTerms(holder, { ...terms, leaseMs }, ballot) };
      });
      void copyTo(voter, { requests, untilMs: Math.min(...its.map(untilMsOf)), late: this.#late });
    }
  }
}

/** The lock is surely held until then. */
const untilMsOf = ({ sentAtMs, terms }: BareLock) => sentAtMs + terms.leaseMs / 2;
