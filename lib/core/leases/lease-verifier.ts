import type { RenewResult } from '../backend.js';
import { type Clock, type Moment, clocksAgree, momentOf } from '../clock.js';
import type { LinkedListNode } from '../linked-list.js';
import type { TimerEntry, TimerWheel } from '../timer-wheel.js';
import type { Grant } from './grant.js';

/** The interval at which a process with locks compares its clocks. Also the pause after the store did not answer. */
const COMPARE_EVERY_MS = 1_000;

interface LeaseVerifierParts {
  readonly clock: Clock;
  readonly timerWheel: TimerWheel;
  /** Returns all grants that this process holds. */
  readonly grants: () => readonly Grant[];
  /** Asks the store about a grant. The grant is up to date when the promise settles. */
  readonly verify: (grant: Grant) => Promise<RenewResult>;
}

interface Verification {
  readonly startedAt: Moment;
  readonly result: Promise<RenewResult>;
}

/**
 * Asks the store about held locks when the wall clock and the monotonic clock disagree: the machine may have slept, or
 * its clock was set. Until the store has confirmed a lock, `isValid()` returns `false`.
 */
export class LeaseVerifier implements TimerEntry {
  atMs = 0;
  wheelNode: LinkedListNode<TimerEntry> | undefined;
  readonly #parts: LeaseVerifierParts;
  readonly #running = new Map<Grant, Verification>();
  /** When all grants were last compared. */
  #allVerifiedAt: Moment | undefined;
  #pausedUntilMs = -Infinity;

  constructor(parts: LeaseVerifierParts) {
    this.#parts = parts;
  }

  /** Compares the clocks periodically from now on, while this process holds a grant. */
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

  /** Called by a read that found the clocks in disagreement. The read returns at once; a later one gets the result. */
  onClocksDisagree(grant: Grant): void {
    if (this.#parts.clock.monotonicMs() < this.#pausedUntilMs) return;
    // The same disagreement affects all other grants. Many reads may find it before the store has answered.
    if (!this.#isVerifyingAll) this.#verifyAllInDoubt(this.#parts.grants());
    void this.verify(grant);
  }

  /** Asks about one grant, unless a request from after the disagreement is in flight already. */
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

  /** Whether all grants were compared since the clocks began to disagree, and results are still open. */
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
