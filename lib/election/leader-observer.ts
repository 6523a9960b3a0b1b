import type { TimerWheel, TimerEntry } from '../core/timer-wheel.js';
import type { Locks } from '../core/locks.js';
import type { LeaderInfo } from './candidate.js';

interface LeaderObserverParts {
  readonly election: string;
  readonly locks: Locks;
  readonly timerWheel: TimerWheel;
}

/** Looks come a third of the lease apart, or up to a twelfth more. */
const CHECK_AFTER_RATIO = 1 / 3;
const CHECK_JITTER_RATIO = 1 / 12;
/** Looks within this part of the lease go together. */
const CHECK_ALIGNMENT_RATIO = 1 / 64;

/** Tells when another leads. It asks the store for that only while somebody listens. */
export class LeaderObserver {
  readonly #parts: LeaderObserverParts;
  /** The newest term that we know of. */
  #newestTerm = 0n;
  #nextCheck: TimerEntry | undefined;

  constructor(parts: LeaderObserverParts) {
    this.#parts = parts;
  }

  /** Asks now and then, until it is stopped. */
  start(leaseMs: number, readLeader: () => Promise<LeaderInfo | null>): void {
    const { timerWheel, locks } = this.#parts;
    const stepMs = leaseMs * CHECK_ALIGNMENT_RATIO;
    const atMs =
      locks.clock.monotonicMs() + leaseMs * (CHECK_AFTER_RATIO + Math.random() * CHECK_JITTER_RATIO);
    const run = () => {
      this.start(leaseMs, readLeader);
      if (locks.events.hasListeners('leader-changed')) void this.#check(readLeader);
    };
    this.#nextCheck = timerWheel.add({ atMs: Math.ceil(atMs / stepMs) * stepMs, run });
  }

  stop(): void {
    if (this.#nextCheck) this.#parts.timerWheel.remove(this.#nextCheck);
    this.#nextCheck = undefined;
  }

  /** Of two answers that overtook each other, the larger term is the newer. */
  observe(term: bigint, leader: string): void {
    if (term <= this.#newestTerm) return;
    this.#newestTerm = term;
    const { locks, election } = this.#parts;
    locks.events.emit('leader-changed', { election, term, leader });
  }

  async #check(readLeader: () => Promise<LeaderInfo | null>): Promise<void> {
    // While the store is down there is no news.
    const found = await readLeader().catch(() => null);
    if (found && this.#nextCheck) this.observe(found.term, found.instance);
  }
}
