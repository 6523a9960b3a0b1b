import type { Claim, ReleaseAnswer, RenewAnswer } from './backend.js';
import type { Clock, Moment, Timer } from './clock.js';
import { LockLostError, LockShutdownError, LockUnavailableError } from './errors.js';
import type { Lock } from './lock.js';
import { checkLeaseMs } from './options.js';

/** Clocks of two machines may run at slightly different speeds; this part of a lease is never counted on. */
const DRIFT_RATIO = 0.01;
const DRIFT_MIN_MS = 2;

/**
 * The monotonic clock stands still while a machine sleeps, and the store's does not. When wall clock and monotonic
 * clock disagree by more than this about the time since the last confirmation, the lease is not trusted until a
 * renewal confirms it.
 */
const LONGEST_CLOCK_DISAGREEMENT_MS = 1_000;

/** Who carries out what a lease asks for. */
export interface LeaseDesk {
  readonly clock: Clock;
  /** The lease has heard the answer when this settles. */
  renew(lease: Lease, leaseMs: number): Promise<RenewAnswer>;
  release(lease: Lease): Promise<ReleaseAnswer>;
  /** Called once, at the moment of the loss. */
  onLost(lease: Lease, error: LockLostError): void;
}

export interface LeaseGrant {
  readonly key: string;
  readonly claim: Claim;
  readonly fencingToken: bigint;
  readonly leaseMs: number;
  /** Sampled before the request was sent: the store began to count later than that. */
  readonly sentAt: Moment;
  /** The monotonic time until which the request, however late it arrives, may make the lease last in the store. */
  readonly lastsUntilMs: number;
}

/** A renewal, as far as a lease must know of it. */
export type Renewal = Pick<LeaseGrant, 'sentAt' | 'leaseMs' | 'lastsUntilMs'>;

/**
 * One grant, from the moment it is delivered: `held → releasing → released`, or `held → lost`. (Before that it was
 * `acquiring`, and after its end nothing brings it back.)
 *
 * Validity counts from before the request was sent, so it ends here before the lease ends in the store.
 */
export class Lease implements Lock {
  readonly key: string;
  readonly claim: Claim;
  readonly fencingToken: bigint;
  readonly leaseMs: number;
  readonly #desk: LeaseDesk;
  #state: 'held' | 'releasing' | 'released' | 'lost' = 'held';
  #confirmedAt: Moment;
  #validUntilMs: number;
  #lastsUntilMs: number;
  #deadline: Timer;
  #abort: AbortController | undefined;
  #abortReason: Error | undefined;
  #loss: LockLostError | undefined;

  constructor({ key, claim, fencingToken, leaseMs, sentAt, lastsUntilMs }: LeaseGrant, desk: LeaseDesk) {
    this.key = key;
    this.claim = claim;
    this.fencingToken = fencingToken;
    this.leaseMs = leaseMs;
    this.#desk = desk;
    this.#confirmedAt = sentAt;
    this.#validUntilMs = endOfValidity(sentAt.monotonicMs, leaseMs);
    this.#lastsUntilMs = lastsUntilMs;
    this.#deadline = this.#armDeadline();
  }

  /** The monotonic time of the newest request that the store confirmed. */
  get confirmedAtMs(): number {
    return this.#confirmedAt.monotonicMs;
  }

  /** Until then, on the monotonic clock, the store may think that we hold it; not longer. */
  get lastsUntilMs(): number {
    return this.#lastsUntilMs;
  }

  get isHeld(): boolean {
    return this.#state === 'held';
  }

  get isLost(): boolean {
    this.#noticeEnd();
    return this.#state === 'lost';
  }

  get signal(): AbortSignal {
    if (!this.#abort) {
      this.#abort = new AbortController();
      if (this.#abortReason) this.#abort.abort(this.#abortReason);
    }
    this.#noticeEnd();
    return this.#abort.signal;
  }

  isValid(): boolean {
    this.#noticeEnd();
    return this.#state === 'held' && this.#clocksAgree();
  }

  remainingMs(): number {
    return this.isValid() ? this.#validUntilMs - this.#desk.clock.monotonicMs() : 0;
  }

  throwIfLost(): void {
    if (this.isValid()) return;
    throw this.#loss ?? this.#lossAsError();
  }

  async extend(leaseMs: number): Promise<void> {
    checkLeaseMs(leaseMs);
    this.throwIfLost();
    const answer = await this.#desk.renew(this, leaseMs);
    if (answer.kind === 'unknown') {
      throw new LockUnavailableError(
        `The store did not confirm that lock "${this.key}" was extended. Try again.`,
        {
          key: this.key,
          cause: answer.cause,
        },
      );
    }
    this.throwIfLost();
  }

  async release(): Promise<boolean> {
    if (this.#state !== 'held') return false;
    const answer = await this.giveBack();
    if (answer.kind === 'unknown') {
      if (answer.cause instanceof LockShutdownError) throw answer.cause;
      throw new LockUnavailableError(
        `The store did not confirm that lock "${this.key}" was released. It is tried again in the background, ` +
          `and the lease ends by itself within ${Math.ceil(this.#lastsUntilMs - this.#desk.clock.monotonicMs())} ms.`,
        { key: this.key, cause: answer.cause },
      );
    }
    return answer.kind === 'released';
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#state === 'held') await this.giveBack();
  }

  /** Releases and tells what the store said. Never rejects, so that it cannot hide how the work ended. */
  async giveBack(): Promise<ReleaseAnswer> {
    this.#state = 'releasing';
    this.#deadline.cancel();
    const answer = await this.#desk.release(this);
    this.#state = 'released';
    return answer;
  }

  /** A renewal is sent, and may take effect whatever becomes of its answer. */
  sent({ lastsUntilMs }: Renewal): void {
    this.#lastsUntilMs = Math.max(this.#lastsUntilMs, lastsUntilMs);
  }

  /** Takes in the answer to a renewal, however late it comes: only a held lease can be lost. */
  heard(answer: RenewAnswer, { sentAt, leaseMs }: Renewal): void {
    if (answer.kind === 'unknown') return;
    if (answer.kind === 'lost') {
      this.lose(
        new LockLostError(
          `Lock "${this.key}" is no longer ours: the store no longer has this grant, because it ran out, ` +
            `was released by force, or was forgotten in a restart of the store.`,
          { key: this.key },
        ),
      );
      return;
    }
    // Answers may overtake each other, so neither value may ever go back.
    this.#validUntilMs = Math.max(this.#validUntilMs, endOfValidity(sentAt.monotonicMs, leaseMs));
    if (sentAt.monotonicMs > this.#confirmedAt.monotonicMs) this.#confirmedAt = sentAt;
  }

  /** The terminal loss: aborts the signal and tells the desk. */
  lose(error: LockLostError): void {
    if (this.#state !== 'held') return;
    this.#state = 'lost';
    this.#loss = error;
    this.#deadline.cancel();
    this.#abortWith(error);
    this.#desk.onLost(this, error);
  }

  /** Asks the work to end without giving the lock up. */
  abort(reason: Error): void {
    if (this.#state === 'held') this.#abortWith(reason);
  }

  /** Stops looking after the lease: it lapses in the store by itself. */
  letLapse(): void {
    this.#deadline.cancel();
  }

  #abortWith(reason: Error): void {
    this.#abortReason ??= reason;
    this.#abort?.abort(reason);
  }

  #armDeadline(): Timer {
    const { clock } = this.#desk;
    return clock.after(this.#validUntilMs - clock.monotonicMs(), () => {
      // A renewal only moves the time; the timer looks at it when it wakes.
      this.#noticeEnd();
      if (this.#state === 'held') this.#deadline = this.#armDeadline();
    });
  }

  /** Every look is at the clock: in a process that was stopped, it comes before the timer. */
  #noticeEnd(): void {
    if (this.#state === 'held' && this.#isOver()) this.lose(this.#lossAsError());
  }

  #lossAsError(): LockLostError {
    const why =
      this.#state === 'releasing' || this.#state === 'released'
        ? 'it was released'
        : this.#isOver()
          ? `its lease of ${this.leaseMs} ms was not renewed in time`
          : 'this machine slept or its clock was set, and the store has not confirmed the lease since';
    return new LockLostError(`Lock "${this.key}" is not ours: ${why}.`, { key: this.key });
  }

  #isOver(): boolean {
    return this.#desk.clock.monotonicMs() >= this.#validUntilMs;
  }

  /** Counted from before the confirmed request was sent: an answer may have been read only after the sleep. */
  #clocksAgree(): boolean {
    const { clock } = this.#desk;
    const monotonicMs = clock.monotonicMs() - this.#confirmedAt.monotonicMs;
    const wallMs = clock.wallMs() - this.#confirmedAt.wallMs;
    return Math.abs(wallMs - monotonicMs) < LONGEST_CLOCK_DISAGREEMENT_MS;
  }
}

const endOfValidity = (sentAtMs: number, leaseMs: number) =>
  sentAtMs + leaseMs - Math.max(leaseMs * DRIFT_RATIO, DRIFT_MIN_MS);
