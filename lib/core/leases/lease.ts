import type { Claim, ReleaseResult, RenewResult, UnknownResult } from '../backend.js';
import { extensionFailedError } from '../error-factories.js';
import { LockLostError, LockShutdownError, LockUnavailableError } from '../errors.js';
import { PrintableLock } from '../json.js';
import type { Lock } from '../lock.js';
import { checkLeaseMs } from '../options.js';
import type { CurrentLease, Grant } from './grant.js';

/** Who carries out what a lease asks for. */
export interface LeaseOperations {
  /** The longest lease that may be asked for. */
  readonly maxLeaseMs: number | undefined;
  /** The lease has heard the answer when this settles. */
  renew(grant: Grant, leaseMs: number): Promise<RenewResult>;
  /** Asks the store about a grant that the clocks of this process cannot vouch for. */
  verify(grant: Grant): Promise<RenewResult>;
  /** A read has found that the clocks disagree. */
  onClocksDisagree(grant: Grant): void;
  release(lease: Lease, onResult: (result: ReleaseResult) => void): void;
  /** Called before a release by hand. */
  warnOfOpenTransaction(lease: Lease): void;
  /** Called once, when a lost lease is given back. */
  releaseLost(lease: Lease): void;
  /** Called once, at the moment of the loss. */
  onLost(lease: Lease, error: LockLostError): void;
}

/** Work that joined a lease, as it runs inside the work that holds it. */
export interface ReentrantView {
  /** Asks the work to end: the lease is lost, or the application ends. */
  abort(reason: Error): void;
  /** The lease was released while the work still runs. */
  onOuterReleased(): void;
}

/**
 * One caller's turn at a grant, from the moment it is delivered: `held → released`, or `held → lost`.
 * (Before that it was `acquiring`, and after its end nothing brings it back.)
 */
export class Lease extends PrintableLock implements Lock, CurrentLease {
  readonly grant: Grant;
  readonly fencingToken: bigint;
  /** Callers may release a lock; a run or a term is ended by whoever runs it. */
  purpose: 'lock' | 'run' | 'term' = 'lock';
  #reentrantViews: Set<ReentrantView> | undefined;
  readonly #operations: LeaseOperations;
  #state: 'held' | 'released' | 'lost' = 'held';
  #abort: AbortController | undefined;
  #abortReason: Error | undefined;
  #loss: LockLostError | undefined;
  #hasReleasedLost = false;

  constructor(grant: Grant, operations: LeaseOperations) {
    super();
    this.grant = grant;
    this.fencingToken = grant.takeToken();
    this.#operations = operations;
    grant.currentLease = this;
  }

  get key(): string {
    return this.grant.key;
  }

  get claim(): Claim {
    return this.grant.claim;
  }

  /** Those whose work has not ended. */
  get reentrantViews(): Set<ReentrantView> {
    return (this.#reentrantViews ??= new Set());
  }

  get isHeld(): boolean {
    return this.#state === 'held';
  }

  get isLost(): boolean {
    this.detectLoss();
    return this.#state === 'lost';
  }

  get signal(): AbortSignal {
    if (!this.#abort) {
      this.#abort = new AbortController();
      if (this.#abortReason) this.#abort.abort(this.#abortReason);
    }
    this.detectLoss();
    return this.#abort.signal;
  }

  isValid(): boolean {
    this.detectLoss();
    if (this.#state !== 'held') return false;
    if (this.grant.clocksAgree) return true;
    this.#operations.onClocksDisagree(this.grant);
    return false;
  }

  remainingMs(): number {
    return this.isValid() ? this.grant.remainingMs : 0;
  }

  throwIfLost(): void {
    if (this.isValid()) return;
    throw this.#loss ?? this.#createLostError();
  }

  async extend(leaseMs: number): Promise<void> {
    checkLeaseMs(leaseMs, this.#operations.maxLeaseMs);
    const verified = await this.#verifyIfInDoubt();
    if (verified?.kind === 'unknown') throw extensionFailedError(this.key, verified.cause);
    this.throwIfLost();
    const result = await this.#operations.renew(this.grant, leaseMs);
    if (result.kind === 'unknown') throw extensionFailedError(this.key, result.cause);
    this.throwIfLost();
  }

  /** Like {@link isValid}, but asks the store first where the clocks disagree. */
  async isConfirmed(): Promise<boolean> {
    await this.#verifyIfInDoubt();
    return this.isValid();
  }

  release(): Promise<boolean> {
    if (this.#state !== 'held') {
      this.releaseLost();
      return Promise.resolve(false);
    }
    this.#operations.warnOfOpenTransaction(this);
    return new Promise((resolve, reject) =>
      this.startRelease((result) => {
        if (result.kind === 'unknown') reject(this.#unconfirmedReleaseError(result));
        else resolve(result.kind === 'released');
      }),
    );
  }

  async [Symbol.asyncDispose](): Promise<void> {
    // Never rejects, so that it cannot hide how the work ended.
    if (this.#state !== 'held') {
      this.releaseLost();
      return;
    }
    this.#operations.warnOfOpenTransaction(this);
    await new Promise((resolve) => this.startRelease(resolve));
  }

  /** Releases, and tells what the store said. */
  startRelease(onResult: (result: ReleaseResult) => void): void {
    this.#state = 'released';
    if (this.#reentrantViews) for (const view of this.#reentrantViews) view.onOuterReleased();
    this.#operations.release(this, onResult);
  }

  /** Whoever had a lost one needs it no more, should the store have it longer than was known here. */
  releaseLost(): void {
    if (this.#state !== 'lost' || this.#hasReleasedLost) return;
    this.#hasReleasedLost = true;
    this.#operations.releaseLost(this);
  }

  /** The store no longer has the grant. */
  onGrantLost(): void {
    this.#lose(
      new LockLostError(
        `Lock "${this.key}" is no longer ours: the store no longer has this grant, because it ran out, ` +
          `was released by force, or was forgotten in a restart of the store.`,
        { key: this.key },
      ),
    );
  }

  /** Every look is at the clock: in a process that was stopped, it comes before the timer. */
  detectLoss(): void {
    if (this.#state === 'held' && this.grant.isOver) this.#lose(this.#createLostError());
  }

  /** Asks the work to end without giving the lock up. */
  abort(reason: Error): void {
    if (this.#state === 'held') this.#abortWith(reason);
  }

  async #verifyIfInDoubt(): Promise<RenewResult | undefined> {
    this.detectLoss();
    const isInDoubt = this.#state === 'held' && !this.grant.clocksAgree;
    return isInDoubt ? this.#operations.verify(this.grant) : undefined;
  }

  #unconfirmedReleaseError({ cause }: UnknownResult): Error {
    if (cause instanceof LockShutdownError) return cause;
    const maxRemainingMs = Math.ceil(this.grant.lastsForMs);
    return new LockUnavailableError(
      `The store did not confirm that lock "${this.key}" was released. It is tried again in the background, ` +
        `and the lease ends by itself within ${maxRemainingMs} ms.`,
      { key: this.key, cause },
    );
  }

  /** The terminal loss: aborts the signal and tells the desk. */
  #lose(error: LockLostError): void {
    if (this.#state !== 'held') return;
    this.#state = 'lost';
    this.#loss = error;
    this.#abortWith(error);
    this.#operations.onLost(this, error);
  }

  #abortWith(reason: Error): void {
    this.#abortReason ??= reason;
    this.#abort?.abort(reason);
    if (this.#reentrantViews) for (const view of this.#reentrantViews) view.abort(reason);
  }

  #createLostError(): LockLostError {
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
