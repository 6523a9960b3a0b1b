import type { RenewResult } from '../backend-results.js';
import { type Clock, type Moment, clocksAgree, momentOf } from '../clock.js';
import type { TimerWheel, WheelTimer } from '../timer-wheel.js';
import type { Grant } from './grant.js';

/** The interval at which a process with locks compares its clocks. Also the pause after the store did not answer. */
const COMPARE_EVERY_MS = 1_000;

/** A held lock, as far as the verifier needs it. */
interface Verifiable {
  readonly grant: Pick<Grant, 'clocksAgree'>;
  /** Asks the store about the grant. The grant is up to date when the promise settles. */
  verifyAtStore(): Promise<RenewResult>;
}

interface LeaseVerifierParts<Held> {
  readonly clock: Clock;
  readonly timerWheel: TimerWheel;
  /** All locks that this process holds. */
  readonly heldLocks: Iterable<Held>;
}

interface Verification {
  readonly startedAt: Moment;
  readonly result: Promise<RenewResult>;
}

/**
 * Asks the store about held locks when the wall clock and the monotonic clock disagree: the machine may have slept, or
 * its clock was set. Until the store has confirmed a lock, `isValid()` returns `false`.
 */
export class LeaseVerifier<Held extends Verifiable> {
  readonly #parts: LeaseVerifierParts<Held>;
  #timer: WheelTimer | undefined;
  readonly #running = new Map<Held, Verification>();
  /** When all held locks were last compared. */
  #allVerifiedAt: Moment | undefined;
  #pausedUntilMs = -Infinity;

  constructor(parts: LeaseVerifierParts<Held>) {
    this.#parts = parts;
  }

  /** Compares the clocks periodically from now on, while this process holds a lock. */
  start(): void {
    if (this.#timer?.isLinked) return;
    const { clock, timerWheel } = this.#parts;
    this.#timer = timerWheel.add(clock.monotonicMs() + COMPARE_EVERY_MS, this);
  }

  stop(): void {
    this.#timer?.cancel();
  }

  onDue(): void {
    const heldLocks = [...this.#parts.heldLocks];
    if (heldLocks.length === 0) return;
    this.start();
    this.#verifyAllInDoubt(heldLocks);
  }

  /** Called by a read that found the clocks in disagreement. The read returns at once; a later one gets the result. */
  onClocksDisagree(held: Held): void {
    if (this.#parts.clock.monotonicMs() < this.#pausedUntilMs) return;
    // The same disagreement affects all other locks. Many reads may find it before the store has answered.
    if (!this.#isVerifyingAll) this.#verifyAllInDoubt([...this.#parts.heldLocks]);
    void this.verify(held);
  }

  /** Asks about one lock, unless a request from after the disagreement is in flight already. */
  verify(held: Held): Promise<RenewResult> {
    const { clock } = this.#parts;
    const running = this.#running.get(held);
    const startedAt = momentOf(clock);
    if (running && clocksAgree(running.startedAt, startedAt)) return running.result;
    const verification = { startedAt, result: held.verifyAtStore() };
    this.#running.set(held, verification);
    void verification.result.then((result) => {
      if (this.#running.get(held) === verification) this.#running.delete(held);
      if (result.kind === 'unknown') this.#pausedUntilMs = clock.monotonicMs() + COMPARE_EVERY_MS;
    });
    return verification.result;
  }

  /** Whether all held locks were compared since the clocks began to disagree, and results are still open. */
  get #isVerifyingAll(): boolean {
    const { clock } = this.#parts;
    return (
      this.#running.size > 0 &&
      this.#allVerifiedAt !== undefined &&
      clocksAgree(this.#allVerifiedAt, momentOf(clock))
    );
  }

  #verifyAllInDoubt(heldLocks: readonly Held[]): void {
    this.#allVerifiedAt = momentOf(this.#parts.clock);
    for (const held of heldLocks) if (!held.grant.clocksAgree) void this.verify(held);
  }
}
