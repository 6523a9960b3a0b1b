import type { AcquisitionId } from '../backend.js';
import type { RenewResult } from '../backend-results.js';
import {
  extensionFailedError,
  foreignKeyError,
  lockInDoubtError,
  lockReleasedError,
  outerReleasedError,
} from '../error-factories.js';
import type { LockLostError } from '../errors.js';
import type { EventSubject, LockEventName, LockPurpose } from '../events.js';
import { hasOpenTransaction } from '../open-transactions.js';
import { checkLeaseMs } from '../options.js';
import { AbortableLock } from './abortable-lock.js';
import type { Grant } from './grant.js';
import type { HeldLock } from './held-lock.js';
import type { CurrentHandle } from './lease-end-events.js';
import { type InternalLock, releaseForCaller } from './internal-lock.js';
import type { ReleaseListener } from './releaser.js';

/** How long the caller waited for the lock. */
interface Wait {
  /** By the monotonic clock. */
  readonly startedAtMs: number;
  readonly waitedMs: number;
}

/** What one caller has of a held lock, from the moment the lock is delivered to it until it is released or lost. */
export class LockHandle extends AbortableLock implements InternalLock, CurrentHandle {
  readonly fencingToken: bigint;
  /** The work may release a `lock`. The lock of a `run` or a `term` is released by its job or its election. */
  readonly purpose: LockPurpose;
  readonly label: string | undefined;
  readonly eventPermit: number | undefined;
  /** The events that the lock of which this handle is a part publishes in its place. */
  suppressedEvents: ReadonlySet<LockEventName> | undefined;
  readonly waitedMs: number;
  readonly acquiredAtMs: number;
  readonly #held: HeldLock;
  #isReleased = false;

  constructor(held: HeldLock, subject: EventSubject, { startedAtMs, waitedMs }: Wait) {
    super();
    const { label, purpose = 'lock', eventPermit, suppressedEvents } = subject;
    this.#held = held;
    this.purpose = purpose;
    this.label = label;
    this.eventPermit = eventPermit;
    this.suppressedEvents = suppressedEvents;
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

  get keys(): readonly string[] {
    return [this.key];
  }

  get permit(): number {
    return 0;
  }

  get eventToken(): bigint {
    return this.fencingToken;
  }

  fencingTokenOf(key: string): bigint {
    if (key === this.key) return this.fencingToken;
    throw foreignKeyError(key, this.keys);
  }

  get acquisition(): AcquisitionId {
    return this.grant.request;
  }

  get storeKeys(): string {
    return this.acquisition.key;
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

  isValid(): boolean {
    this.detectLoss();
    if (!this.isHeld) return false;
    if (this.grant.clocksAgree) return true;
    this.#held.shared.verifier.onClocksDisagree(this.#held);
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
    checkLeaseMs(leaseMs, this.#held.shared.leaseLimits);
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
    return releaseForCaller(this, () => this.grant.lastsForMs);
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

  startRelease(listener: ReleaseListener): void {
    this.#isReleased = true;
    this.abortViews(() => outerReleasedError(this.key));
    this.#held.release(this, listener);
  }

  releaseLost(onSent?: () => void): void {
    if (this.#isReleased) onSent?.();
    else this.#held.releaseLost(onSent);
  }

  /** Stops the renewal. The lease expires, unless it is released before. */
  stopRenewing(): void {
    if (!this.#isReleased) this.#held.stopRenewing();
  }

  loseWithoutRelease(reason: LockLostError): void {
    if (!this.#isReleased) this.#held.loseWithoutRelease(reason);
  }

  /** Marks the run of a tick as ended, so that no other run takes it over. */
  endRun(): void {
    this.grant.endRun();
  }

  warnOfOpenTransaction(): void {
    const { key, fencingToken } = this;
    if (hasOpenTransaction(this))
      this.#held.shared.events.emit('transaction-open', { key, fencingToken }, this);
  }

  uses(held: HeldLock): boolean {
    return held.isUsedBy(this);
  }

  detectLoss(): void {
    if (!this.#isReleased) this.#held.detectLoss();
  }

  override abort(reason: Error): void {
    if (!this.#isReleased) super.abort(reason);
  }

  async #verifyIfInDoubt(): Promise<RenewResult | undefined> {
    this.detectLoss();
    return this.isHeld && !this.grant.clocksAgree ? this.#held.shared.verifier.verify(this.#held) : undefined;
  }
}
