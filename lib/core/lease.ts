import type { Claim, ReleaseAnswer, RenewAnswer, Unknown } from './backend.js';
import { LockLostError, LockShutdownError, LockUnavailableError } from './errors.js';
import type { Grant, Tenant } from './grant.js';
import { PrintableLock } from './json.js';
import type { Lock } from './lock.js';
import { checkLeaseMs } from './options.js';
import { notExtended } from './refusals.js';

/** Who carries out what a lease asks for. */
export interface LeaseDesk {
  /** The longest lease that may be asked for. */
  readonly maxLeaseMs: number | undefined;
  /** The lease has heard the answer when this settles. */
  renew(grant: Grant, leaseMs: number): Promise<RenewAnswer>;
  /** Asks the store about a grant that the clocks of this process cannot vouch for. */
  verify(grant: Grant): Promise<RenewAnswer>;
  /** A read has found that the clocks disagree. */
  onDoubt(grant: Grant): void;
  release(lease: Lease, onAnswer: (answer: ReleaseAnswer) => void): void;
  /** Called before a release by hand. */
  warnOfOpenTransaction(lease: Lease): void;
  /** Called once, when a lost lease is given back. */
  forgo(lease: Lease): void;
  /** Called once, at the moment of the loss. */
  onLost(lease: Lease, error: LockLostError): void;
}

/** Work that joined a lease, as it runs inside the work that holds it. */
export interface LeaseJoiner {
  /** Asks the work to end: the lease is lost, or the application ends. */
  abort(reason: Error): void;
  /** The lease was released while the work still runs. */
  onOuterReleased(): void;
}

/**
 * One caller's turn at a grant, from the moment it is delivered: `held → released`, or `held → lost`.
 * (Before that it was `acquiring`, and after its end nothing brings it back.)
 */
export class Lease extends PrintableLock implements Lock, Tenant {
  readonly grant: Grant;
  readonly fencingToken: bigint;
  /** Callers may release a lock; a run or a term is ended by whoever runs it. */
  purpose: 'lock' | 'run' | 'term' = 'lock';
  #joiners: Set<LeaseJoiner> | undefined;
  readonly #desk: LeaseDesk;
  #state: 'held' | 'released' | 'lost' = 'held';
  #abort: AbortController | undefined;
  #abortReason: Error | undefined;
  #loss: LockLostError | undefined;
  #isForgone = false;

  constructor(grant: Grant, desk: LeaseDesk) {
    super();
    this.grant = grant;
    this.fencingToken = grant.takeToken();
    this.#desk = desk;
    grant.tenant = this;
  }

  get key(): string {
    return this.grant.key;
  }

  get claim(): Claim {
    return this.grant.claim;
  }

  /** Those whose work has not ended. */
  get joiners(): Set<LeaseJoiner> {
    return (this.#joiners ??= new Set());
  }

  get isHeld(): boolean {
    return this.#state === 'held';
  }

  get isLost(): boolean {
    this.noticeEnd();
    return this.#state === 'lost';
  }

  get signal(): AbortSignal {
    if (!this.#abort) {
      this.#abort = new AbortController();
      if (this.#abortReason) this.#abort.abort(this.#abortReason);
    }
    this.noticeEnd();
    return this.#abort.signal;
  }

  isValid(): boolean {
    this.noticeEnd();
    if (this.#state !== 'held') return false;
    if (this.grant.doClocksAgree) return true;
    this.#desk.onDoubt(this.grant);
    return false;
  }

  remainingMs(): number {
    return this.isValid() ? this.grant.remainingMs : 0;
  }

  throwIfLost(): void {
    if (this.isValid()) return;
    throw this.#loss ?? this.#lossAsError();
  }

  async extend(leaseMs: number): Promise<void> {
    checkLeaseMs(leaseMs, this.#desk.maxLeaseMs);
    const verified = await this.#verified();
    if (verified?.kind === 'unknown') throw notExtended(this.key, verified.cause);
    this.throwIfLost();
    const answer = await this.#desk.renew(this.grant, leaseMs);
    if (answer.kind === 'unknown') throw notExtended(this.key, answer.cause);
    this.throwIfLost();
  }

  /** Like {@link isValid}, but asks the store first where the clocks disagree. */
  async isConfirmed(): Promise<boolean> {
    await this.#verified();
    return this.isValid();
  }

  release(): Promise<boolean> {
    if (this.#state !== 'held') {
      this.forgo();
      return Promise.resolve(false);
    }
    this.#desk.warnOfOpenTransaction(this);
    return new Promise((resolve, reject) =>
      this.giveBack((answer) => {
        if (answer.kind === 'unknown') reject(this.#releaseInDoubt(answer));
        else resolve(answer.kind === 'released');
      }),
    );
  }

  async [Symbol.asyncDispose](): Promise<void> {
    // Never rejects, so that it cannot hide how the work ended.
    if (this.#state !== 'held') {
      this.forgo();
      return;
    }
    this.#desk.warnOfOpenTransaction(this);
    await new Promise((resolve) => this.giveBack(resolve));
  }

  /** Releases, and tells what the store said. */
  giveBack(onAnswer: (answer: ReleaseAnswer) => void): void {
    this.#state = 'released';
    if (this.#joiners) for (const joiner of this.#joiners) joiner.onOuterReleased();
    this.#desk.release(this, onAnswer);
  }

  /** Whoever had a lost one needs it no more, should the store have it longer than was known here. */
  forgo(): void {
    if (this.#state !== 'lost' || this.#isForgone) return;
    this.#isForgone = true;
    this.#desk.forgo(this);
  }

  /** The store no longer has the grant. */
  disowned(): void {
    this.#lose(
      new LockLostError(
        `Lock "${this.key}" is no longer ours: the store no longer has this grant, because it ran out, ` +
          `was released by force, or was forgotten in a restart of the store.`,
        { key: this.key },
      ),
    );
  }

  /** Every look is at the clock: in a process that was stopped, it comes before the timer. */
  noticeEnd(): void {
    if (this.#state === 'held' && this.grant.isOver) this.#lose(this.#lossAsError());
  }

  /** Asks the work to end without giving the lock up. */
  abort(reason: Error): void {
    if (this.#state === 'held') this.#abortWith(reason);
  }

  async #verified(): Promise<RenewAnswer | undefined> {
    this.noticeEnd();
    const isInDoubt = this.#state === 'held' && !this.grant.doClocksAgree;
    return isInDoubt ? this.#desk.verify(this.grant) : undefined;
  }

  #releaseInDoubt({ cause }: Unknown): Error {
    if (cause instanceof LockShutdownError) return cause;
    const atMostMs = Math.ceil(this.grant.lastsForMs);
    return new LockUnavailableError(
      `The store did not confirm that lock "${this.key}" was released. It is tried again in the background, ` +
        `and the lease ends by itself within ${atMostMs} ms.`,
      { key: this.key, cause },
    );
  }

  /** The terminal loss: aborts the signal and tells the desk. */
  #lose(error: LockLostError): void {
    if (this.#state !== 'held') return;
    this.#state = 'lost';
    this.#loss = error;
    this.#abortWith(error);
    this.#desk.onLost(this, error);
  }

  #abortWith(reason: Error): void {
    this.#abortReason ??= reason;
    this.#abort?.abort(reason);
    if (this.#joiners) for (const joiner of this.#joiners) joiner.abort(reason);
  }

  #lossAsError(): LockLostError {
    const why =
      this.#state === 'released'
        ? 'it was released'
        : this.grant.isOver
          ? `its lease of ${this.grant.leaseMs} ms ${this.grant.isRenewed ? 'was not renewed in time' : 'is over'}`
          : 'this machine slept or its clock was set, and the store has not confirmed the lease since. It is being ' +
            'asked now; if it confirms, the lock is valid again';
    return new LockLostError(`Lock "${this.key}" is not ours: ${why}.`, { key: this.key });
  }
}
