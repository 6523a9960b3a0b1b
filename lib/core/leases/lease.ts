import type { Claim, ReleaseResult, RenewResult, UnknownResult } from '../backend.js';
import { extensionFailedError } from '../error-factories.js';
import { LockLostError, LockShutdownError, LockUnavailableError } from '../errors.js';
import { PrintableLock } from '../json.js';
import type { Lock } from '../lock.js';
import { checkLeaseMs } from '../options.js';
import type { CurrentLease, Grant } from './grant.js';

/** The operations that a lease leaves to the held locks. */
export interface LeaseOperations {
  /** The longest lease that the backend can keep. */
  readonly maxLeaseMs: number | undefined;
  /** Renews the grant. The grant is up to date when the promise settles. */
  renew(grant: Grant, leaseMs: number): Promise<RenewResult>;
  /** Asks the store about a grant while the clocks of this process disagree. */
  verify(grant: Grant): Promise<RenewResult>;
  /** Called when a read found the clocks in disagreement. */
  onClocksDisagree(grant: Grant): void;
  release(lease: Lease, onResult: (result: ReleaseResult) => void): void;
  /** Called before the application releases the lock itself. */
  warnOfOpenTransaction(lease: Lease): void;
  /** Called once, when a lost lease is released. */
  releaseLost(lease: Lease): void;
  /** Called once, at the moment of the loss. */
  onLost(lease: Lease, error: LockLostError): void;
}

/** A nested lock on the same key, used by work inside the work that holds the lease. */
export interface ReentrantView {
  /** Aborts the signal of the work: the lease is lost, or the application ends. */
  abort(reason: Error): void;
  /** The lease was released while the work still runs. */
  onOuterReleased(): void;
}

/**
 * The lock of one caller, from the moment a grant is delivered to it. Its state goes from `held` to `released`, or from
 * `held` to `lost`, and never back.
 */
export class Lease extends PrintableLock implements Lock, CurrentLease {
  readonly grant: Grant;
  readonly fencingToken: bigint;
  /** The work may release a `lock`. The lock of a `run` or a `term` is released by its job or its election. */
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

  /** The nested locks that are not released yet. */
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

  /** Like {@link isValid}, but asks the store first if the clocks disagree. */
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

  /** Marks the lease as released and releases it. `onResult` gets the result of the store. */
  startRelease(onResult: (result: ReleaseResult) => void): void {
    this.#state = 'released';
    if (this.#reentrantViews) for (const view of this.#reentrantViews) view.onOuterReleased();
    this.#operations.release(this, onResult);
  }

  /** Releases a lost lease once its work has ended: the store may keep it for longer than this process knows. */
  releaseLost(): void {
    if (this.#state !== 'lost' || this.#hasReleasedLost) return;
    this.#hasReleasedLost = true;
    this.#operations.releaseLost(this);
  }

  /** The store no longer has the grant. */
  onGrantLost(): void {
    this.#lose(
      new LockLostError(
        `Lost lock "${this.key}": the store no longer has this grant. Its lease expired, it was released by force, ` +
          `or the store lost it in a restart.`,
        { key: this.key },
      ),
    );
  }

  /** Reads the clock: in a process that was stopped, a read may come before the timer. */
  detectLoss(): void {
    if (this.#state === 'held' && this.grant.isOver) this.#lose(this.#createLostError());
  }

  /** Aborts the signal of the work. The lock stays held. */
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
      `The store did not confirm the release of lock "${this.key}". The release is retried in the background, ` +
        `and the lease ends by itself within ${maxRemainingMs} ms.`,
      { key: this.key, cause },
    );
  }

  /** Marks the lease as lost, aborts the signal and reports the loss. */
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
    const { key } = this;
    return new LockLostError(this.#describeInvalidity(), { key });
  }

  #describeInvalidity(): string {
    const { key, grant } = this;
    if (this.#state === 'released') return `Lock "${key}" is no longer held: it was released.`;
    if (!grant.isOver)
      return (
        `Lock "${key}" is in doubt: this machine slept or its clock was set, and the store has not confirmed the lease ` +
        `since. The store is being asked now; if it confirms, the lock is valid again.`
      );
    const why = grant.isRenewed ? ' because no renewal reached the store in time' : '';
    return `Lost lock "${key}": its ${grant.leaseMs} ms lease expired${why}.`;
  }
}
