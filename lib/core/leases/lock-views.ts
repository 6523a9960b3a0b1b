import { inspect } from 'node:util';
import { outerReleasedError } from '../error-factories.js';
import { LockConfigError, type LockLostError } from '../errors.js';
import { PrintableLock } from '../json.js';
import type { Lock } from '../lock.js';
import { linkViewToLease } from '../open-transactions.js';
import { AbortableLock } from './abortable-lock.js';
import type { HeldLock } from './held-lock.js';
import type { OwnedLock } from './owned-lock.js';
import type { ReleaseListener } from './releaser.js';

/** A lock that shows the lease of another, which renews, loses and releases it. */
abstract class LockView extends AbortableLock implements Lock {
  readonly #lease: OwnedLock;

  constructor(lease: OwnedLock) {
    super();
    this.#lease = lease;
    linkViewToLease(this, lease);
  }

  protected get lease(): OwnedLock {
    return this.#lease;
  }

  get key(): string {
    return this.lease.key;
  }

  get keys(): readonly string[] {
    return this.lease.keys;
  }

  get permit(): number {
    return this.lease.permit;
  }

  get fencingToken(): bigint {
    return this.lease.fencingToken;
  }

  fencingTokenOf(key: string): bigint {
    return this.lease.fencingTokenOf(key);
  }

  detectLoss(): void {
    this.lease.detectLoss();
  }

  isValid(): boolean {
    return this.lease.isValid();
  }

  remainingMs(): number {
    return this.lease.remainingMs();
  }

  throwIfLost(): void {
    this.lease.throwIfLost();
  }

  extend(leaseMs: number): Promise<void> {
    return this.lease.extend(leaseMs);
  }

  leaveToExpire(reason: LockLostError): void {
    this.lease.leaveToExpire(reason);
  }

  abstract release(): Promise<boolean>;
  abstract [Symbol.asyncDispose](): Promise<void>;
}

/** The lock that the work of a job run or a term receives. The run or the term releases it, not the work. */
export class BorrowedLock extends LockView {
  override get signal(): AbortSignal {
    return this.lease.signal;
  }

  release(): Promise<boolean> {
    return Promise.reject(cannotReleaseError(this.lease));
  }

  /** Releases nothing and does not reject: an error here would hide how the work ended. */
  [Symbol.asyncDispose](): Promise<void> {
    return Promise.resolve();
  }
}

/**
 * The lock of a nested `acquire` with `reentrant: true`: a view of the outer lock, which is the only one that is
 * renewed, lost and released. If the outer lock is released while this one is in use, this one is lost.
 */
export class ReentrantLock extends LockView {
  readonly #key: string;
  #isReleased = false;

  /** @param key One of the keys of a lock that has several. */
  constructor(outer: OwnedLock, key = outer.key) {
    super(outer);
    this.#key = key;
    outer.addView(this);
  }

  override get key(): string {
    return this.#key;
  }

  override get keys(): readonly string[] {
    return this.#key === this.lease.key ? this.lease.keys : [this.#key];
  }

  override get fencingToken(): bigint {
    return this.lease.keys.includes(this.#key)
      ? this.lease.fencingTokenOf(this.#key)
      : this.lease.fencingToken;
  }

  // A lock without a fencing token of its own prints itself without one.
  override toJSON(): object {
    if (this.#key !== this.lease.key || !(this.lease instanceof PrintableLock)) return super.toJSON();
    return { ...this.lease.toJSON(), remainingMs: this.remainingMs() };
  }

  override [inspect.custom](): object {
    if (this.#key !== this.lease.key || !(this.lease instanceof PrintableLock))
      return super[inspect.custom]();
    return { ...this.lease[inspect.custom](), remainingMs: this.remainingMs() };
  }

  get eventToken(): bigint {
    return this.lease.eventToken;
  }

  get isHeld(): boolean {
    return !this.#isReleased && this.lease.isHeld;
  }

  get isLost(): boolean {
    return this.lease.isLost;
  }

  override get signal(): AbortSignal {
    const outer = this.lease.signal;
    if (outer.aborted) this.abort(outer.reason as Error);
    return super.signal;
  }

  override isValid(): boolean {
    return !this.#isReleased && super.isValid();
  }

  override remainingMs(): number {
    return this.#isReleased ? 0 : super.remainingMs();
  }

  override throwIfLost(): void {
    this.throwIfEnded();
    super.throwIfLost();
  }

  /** @throws LockLostError if the outer lock ended before this one */
  throwIfEnded(): void {
    if (this.lease.isLost) this.lease.throwIfLost();
    if (!this.lease.isHeld) throw outerReleasedError(this.key);
  }

  /** The outer lock counts for itself. */
  uses(_held: HeldLock): boolean {
    return false;
  }

  startRelease({ onSent, onResult }: ReleaseListener): void {
    void this.release();
    onSent?.();
    onResult?.({ kind: 'released' });
  }

  releaseLost(onSent?: () => void): void {
    void this.release();
    onSent?.();
  }

  release(): Promise<boolean> {
    const isFirst = !this.#isReleased;
    this.#isReleased = true;
    this.lease.removeView(this);
    return Promise.resolve(isFirst);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.release();
  }
}

const cannotReleaseError = ({ key, purpose }: OwnedLock) =>
  new LockConfigError(
    purpose === 'term'
      ? `Expected the election to release the lock of its term, got release() of the leadership "${key}". It is released ` +
          `when the work of the term has ended. To let another process lead, call resign() of the candidate.`
      : `Expected the job to release the lock of its run, got release() in a run of "${key}". It is released when the ` +
          `method has ended. To end the run, return from the method.`,
    { key },
  );
