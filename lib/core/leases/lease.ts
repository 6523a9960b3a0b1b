import type { AcquisitionId, RenewResult } from '../backend.js';
import type { UnknownResult } from '../unknown-result.js';
import {
  extensionFailedError,
  lockInDoubtError,
  lockReleasedError,
  outerReleasedError,
  unconfirmedReleaseError,
} from '../error-factories.js';
import { LockShutdownError } from '../errors.js';
import type { EventSubject, LockPurpose } from '../events.js';
import { PrintableLock } from '../json.js';
import type { Lock } from '../lock.js';
import { hasOpenTransaction } from '../open-transactions.js';
import { checkLeaseMs } from '../options.js';
import type { Grant } from './grant.js';
import type { HeldLock } from './held-lock.js';
import type { LockUser } from './lease-end-events.js';
import type { ReleaseListener } from './releaser.js';

/** A part of the work that shares the lease, and stops when it ends. */
type Abortable = Pick<AbortController, 'abort'>;

/** How long the caller of a lease waited for it. */
interface Wait {
  /** By the monotonic clock. */
  readonly startedAtMs: number;
  readonly waitedMs: number;
}

/** The lock of one caller, from the moment a held lock is delivered to it until it is released or lost. */
export class Lease extends PrintableLock implements Lock, LockUser {
  readonly fencingToken: bigint;
  /** The work may release a `lock`. The lock of a `run` or a `term` is released by its job or its election. */
  readonly purpose: LockPurpose;
  readonly label: string | undefined;
  readonly waitedMs: number;
  readonly acquiredAtMs: number;
  readonly #held: HeldLock;
  #isReleased = false;
  #abort: AbortController | undefined;
  #abortReason: Error | undefined;
  /** The nested locks that are not released yet. */
  #views: Set<Abortable> | undefined;

  constructor(held: HeldLock, { label, purpose = 'lock' }: EventSubject, { startedAtMs, waitedMs }: Wait) {
    super();
    this.#held = held;
    this.purpose = purpose;
    this.label = label;
    this.waitedMs = waitedMs;
    this.acquiredAtMs = startedAtMs + waitedMs;
    this.fencingToken = held.use(this);
  }

  get grant(): Grant {
    return this.#held.grant;
  }

  get key(): string {
    return this.grant.key;
  }

  get acquisition(): AcquisitionId {
    return this.grant.request;
  }

  get isRenewed(): boolean {
    return this.#held.isRenewed;
  }

  get isHeld(): boolean {
    return !this.#isReleased && this.#held.isHeld;
  }

  get isLost(): boolean {
    this.detectLoss();
    return !this.#isReleased && this.#held.loss !== undefined;
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
    if (!this.isHeld) return false;
    if (this.grant.clocksAgree) return true;
    this.#held.verifier.onClocksDisagree(this.#held);
    return false;
  }

  remainingMs(): number {
    return this.isValid() ? this.grant.remainingMs : 0;
  }

  throwIfLost(): void {
    if (this.isValid()) return;
    if (this.#isReleased) throw lockReleasedError(this.key);
    throw this.#held.loss ?? lockInDoubtError(this.key);
  }

  async extend(leaseMs: number): Promise<void> {
    checkLeaseMs(leaseMs, this.#held.leaseLimits);
    const verified = await this.#verifyIfInDoubt();
    if (verified?.kind === 'unknown') throw extensionFailedError(this.key, verified.cause);
    this.throwIfLost();
    const result = await this.#held.renew(leaseMs);
    if (result.kind === 'unknown') throw extensionFailedError(this.key, result.cause);
    this.throwIfLost();
  }

  /** Like {@link isValid}, but asks the store first if the clocks disagree. */
  async isConfirmed(): Promise<boolean> {
    await this.#verifyIfInDoubt();
    return this.isValid();
  }

  release(): Promise<boolean> {
    if (!this.isHeld) {
      this.releaseLost();
      return Promise.resolve(false);
    }
    this.warnOfOpenTransaction();
    return new Promise((resolve, reject) =>
      this.startRelease({
        onResult: (result) => {
          if (result.kind === 'unknown') reject(this.#unconfirmedReleaseError(result));
          else resolve(result.kind === 'released');
        },
      }),
    );
  }

  async [Symbol.asyncDispose](): Promise<void> {
    // Never rejects, so that it cannot hide how the work ended.
    if (!this.isHeld) {
      this.releaseLost();
      return;
    }
    this.warnOfOpenTransaction();
    await new Promise((resolve) => this.startRelease({ onResult: resolve }));
  }

  /** Marks the lease as released and releases it. */
  startRelease(listener: ReleaseListener): void {
    this.#isReleased = true;
    for (const view of this.#views ?? []) view.abort(outerReleasedError(this.key));
    this.#held.release(this, listener);
  }

  /** Releases a lost lease once its work has ended: the store may keep it for longer than this process knows. */
  releaseLost(onSent?: () => void): void {
    if (this.#isReleased) onSent?.();
    else this.#held.releaseLost(onSent);
  }

  /** Stops the renewal. The lease expires, unless it is released before. */
  letLapse(): void {
    if (!this.#isReleased) this.#held.stopRenewing();
  }

  /** Marks the run of a tick as ended, so that no other run takes it over. */
  endRun(): void {
    this.grant.endRun();
  }

  /** Warns if a transaction is open that was used under the lock: its COMMIT comes after the release. */
  warnOfOpenTransaction(): void {
    const { key, fencingToken } = this;
    if (hasOpenTransaction(this)) this.#held.events.emit('transaction-open', { key, fencingToken }, this);
  }

  /** Aborts the view together with the signal of the lease, and when the lease is released before the view. */
  addView(view: Abortable): void {
    (this.#views ??= new Set()).add(view);
  }

  removeView(view: Abortable): void {
    this.#views?.delete(view);
  }

  detectLoss(): void {
    if (!this.#isReleased) this.#held.detectLoss();
  }

  /** Aborts the signal of the work. The lock stays held. */
  abort(reason: Error): void {
    if (this.#isReleased) return;
    this.#abortReason ??= reason;
    this.#abort?.abort(reason);
    for (const view of this.#views ?? []) view.abort(reason);
  }

  async #verifyIfInDoubt(): Promise<RenewResult | undefined> {
    this.detectLoss();
    return this.isHeld && !this.grant.clocksAgree ? this.#held.verifier.verify(this.#held) : undefined;
  }

  #unconfirmedReleaseError({ cause }: UnknownResult): Error {
    if (cause instanceof LockShutdownError) return cause;
    return unconfirmedReleaseError(this.key, this.grant.lastsForMs, cause);
  }
}
