import type { RenewResult } from '../backend.js';
import { type Clock, type Moment, clocksAgree, momentOf } from '../clock.js';
import type { LinkedListNode } from '../linked-list.js';
import type { TimerEntry, TimerWheel } from '../timer-wheel.js';
import type { Grant } from './grant.js';

/** How often a process that holds locks compares its clocks, and the pause after the store did not answer. */
const COMPARE_EVERY_MS = 1_000;

interface LeaseVerifierParts {
  readonly clock: Clock;
  readonly timerWheel: TimerWheel;
  /** All that is held. */
  readonly grants: () => readonly Grant[];
  /** Asks the store. The grant knows the answer when this settles. */
  readonly verify: (grant: Grant) => Promise<RenewResult>;
}

interface Verification {
  readonly startedAt: Moment;
  readonly result: Promise<RenewResult>;
}

/**
 * Asks the store about held locks as soon as wall clock and monotonic clock disagree: the machine may have slept, or its
 * clock was set. A lock is not valid until the store has confirmed it.
 */
export class LeaseVerifier implements TimerEntry {
  atMs = 0;
  wheelNode: LinkedListNode<TimerEntry> | undefined;
  readonly #parts: LeaseVerifierParts;
  readonly #running = new Map<Grant, Verification>();
  /** When all that is held was last looked at. */
  #allVerifiedAt: Moment | undefined;
  #pausedUntilMs = -Infinity;

  constructor(parts: LeaseVerifierParts) {
    this.#parts = parts;
  }

  /** Compares the clocks from now on, for as long as anything is held. */
  start(): void {
    if (this.wheelNode) return;
    this.atMs = this.#parts.clock.monotonicMs() + COMPARE_EVERY_MS;
    this.#parts.timerWheel.add(this);
  }

  stop(): void {
    this.#parts.timerWheel.remove(this);
  }

  run(): void {
    const grants = this.#parts.grants();
    if (grants.length === 0) return;
    this.start();
    this.#verifyAllInDoubt(grants);
  }

  /** A read has found that the clocks disagree. It cannot wait, but the next one shall find an answer. */
  onClocksDisagree(grant: Grant): void {
    if (this.#parts.clock.monotonicMs() < this.#pausedUntilMs) return;
    // The same disagreement concerns whatever else is held. Many reads may find it before the store has answered.
    if (!this.#isVerifyingAll) this.#verifyAllInDoubt(this.#parts.grants());
    void this.verify(grant);
  }

  /** Asks about one grant, unless an answer that tells of this moment is on its way already. */
  verify(grant: Grant): Promise<RenewResult> {
    const { clock } = this.#parts;
    const running = this.#running.get(grant);
    const startedAt = momentOf(clock);
    if (running && clocksAgree(running.startedAt, startedAt)) return running.result;
    const verification = { startedAt, result: this.#parts.verify(grant) };
    this.#running.set(grant, verification);
    void verification.result.then((result) => {
      if (this.#running.get(grant) === verification) this.#running.delete(grant);
      if (result.kind === 'unknown') this.#pausedUntilMs = clock.monotonicMs() + COMPARE_EVERY_MS;
    });
    return verification.result;
  }

  /** Since the clocks came to disagree, all that is held was looked at, and answers are still to come. */
  get #isVerifyingAll(): boolean {
    const { clock } = this.#parts;
    return (
      this.#running.size > 0 &&
      this.#allVerifiedAt !== undefined &&
      clocksAgree(this.#allVerifiedAt, momentOf(clock))
    );
  }

  #verifyAllInDoubt(grants: readonly Grant[]): void {
    this.#allVerifiedAt = momentOf(this.#parts.clock);
    for (const grant of grants) if (!grant.clocksAgree) void this.verify(grant);
  }
}
