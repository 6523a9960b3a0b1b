import type { WheelTimer } from '../core/timer-wheel.js';
import type { LeaderInfo } from './candidate.interface.js';
import type { Election } from './election.js';

/** Checks are a third of the lease apart, plus up to a twelfth, so that replicas do not all ask at once. */
const CHECK_AFTER_RATIO = 1 / 3;
const CHECK_JITTER_RATIO = 1 / 12;
/** Checks within this part of the lease run at the same time, so that many elections cause few requests. */
const CHECK_ALIGNMENT_RATIO = 1 / 64;

/** Emits `leader-changed` when a new leader was elected. It asks the store only while the event has listeners. */
export class LeaderObserver {
  readonly #election: Election;
  /** The newest term that was observed. */
  #newestTerm = 0n;
  #nextCheck: WheelTimer | undefined;

  constructor(election: Election) {
    this.#election = election;
  }

  /** Checks the leader repeatedly, until {@link stop} is called. */
  start(leaseMs: number, readLeader: () => Promise<LeaderInfo | null>): void {
    const { timerWheel, locks } = this.#election;
    const stepMs = leaseMs * CHECK_ALIGNMENT_RATIO;
    const atMs =
      locks.clock.monotonicMs() + leaseMs * (CHECK_AFTER_RATIO + Math.random() * CHECK_JITTER_RATIO);
    const run = () => {
      this.start(leaseMs, readLeader);
      if (locks.events.hasListeners('leader-changed')) void this.#check(readLeader);
    };
    this.#nextCheck = timerWheel.add(Math.ceil(atMs / stepMs) * stepMs, { onDue: run });
  }

  stop(): void {
    this.#nextCheck?.cancel();
    this.#nextCheck = undefined;
  }

  /** Ignores a term that is not larger than the last one: results may arrive out of order. */
  observe(term: bigint, leader: string): void {
    if (term <= this.#newestTerm) return;
    this.#newestTerm = term;
    const { locks, name: election } = this.#election;
    locks.events.emit('leader-changed', { election, term, leader });
  }

  async #check(readLeader: () => Promise<LeaderInfo | null>): Promise<void> {
    // While the store is down, nothing can be observed.
    const found = await readLeader().catch(() => null);
    if (found && this.#nextCheck) this.observe(found.term, found.instance);
  }
}
