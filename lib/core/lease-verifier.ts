import type { Agenda, Entry } from './agenda.js';
import type { RenewAnswer } from './backend.js';
import { type Clock, type Moment, doAgree, momentOf } from './clock.js';
import type { Grant } from './grant.js';
import type { Spot } from './list.js';

/** How often a process that holds locks compares its clocks, and the pause after the store did not answer. */
const COMPARE_EVERY_MS = 1_000;

interface LeaseVerifierParts {
  readonly clock: Clock;
  readonly agenda: Agenda;
  /** All that is held. */
  readonly grants: () => readonly Grant[];
  /** Asks the store. The grant knows the answer when this settles. */
  readonly verify: (grant: Grant) => Promise<RenewAnswer>;
}

interface Verification {
  readonly startedAt: Moment;
  readonly answer: Promise<RenewAnswer>;
}

/**
 * Asks the store about held locks as soon as wall clock and monotonic clock disagree: the machine may have slept, or its
 * clock was set. A lock is not valid until the store has confirmed it.
 */
export class LeaseVerifier implements Entry {
  atMs = 0;
  spot: Spot<Entry> | undefined;
  readonly #parts: LeaseVerifierParts;
  readonly #running = new Map<Grant, Verification>();
  /** When all that is held was last looked at. */
  #lookedAt: Moment | undefined;
  #pausedUntilMs = -Infinity;

  constructor(parts: LeaseVerifierParts) {
    this.#parts = parts;
  }

  /** Compares the clocks from now on, for as long as anything is held. */
  start(): void {
    if (this.spot) return;
    this.atMs = this.#parts.clock.monotonicMs() + COMPARE_EVERY_MS;
    this.#parts.agenda.add(this);
  }

  stop(): void {
    this.#parts.agenda.remove(this);
  }

  run(): void {
    const grants = this.#parts.grants();
    if (grants.length === 0) return;
    this.start();
    this.#verifyDoubtful(grants);
  }

  /** A read has found that the clocks disagree. It cannot wait, but the next one shall find an answer. */
  onDoubt(grant: Grant): void {
    if (this.#parts.clock.monotonicMs() < this.#pausedUntilMs) return;
    // The same disagreement concerns whatever else is held. Many reads may find it before the store has answered.
    if (!this.#isUnderWay) this.#verifyDoubtful(this.#parts.grants());
    void this.verify(grant);
  }

  /** Asks about one grant, unless an answer that tells of this moment is on its way already. */
  verify(grant: Grant): Promise<RenewAnswer> {
    const { clock } = this.#parts;
    const running = this.#running.get(grant);
    const startedAt = momentOf(clock);
    if (running && doAgree(running.startedAt, startedAt)) return running.answer;
    const verification = { startedAt, answer: this.#parts.verify(grant) };
    this.#running.set(grant, verification);
    void verification.answer.then((answer) => {
      if (this.#running.get(grant) === verification) this.#running.delete(grant);
      if (answer.kind === 'unknown') this.#pausedUntilMs = clock.monotonicMs() + COMPARE_EVERY_MS;
    });
    return verification.answer;
  }

  /** Since the clocks came to disagree, all that is held was looked at, and answers are still to come. */
  get #isUnderWay(): boolean {
    const { clock } = this.#parts;
    return this.#running.size > 0 && this.#lookedAt !== undefined && doAgree(this.#lookedAt, momentOf(clock));
  }

  #verifyDoubtful(grants: readonly Grant[]): void {
    this.#lookedAt = momentOf(this.#parts.clock);
    for (const grant of grants) if (!grant.doClocksAgree) void this.verify(grant);
  }
}
