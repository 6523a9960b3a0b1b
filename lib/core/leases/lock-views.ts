import { inspect } from 'node:util';
import { lockReleasedError, outerReleasedError } from '../error-factories.js';
import { LockConfigError, type LockLostError } from '../errors.js';
import { PrintableLock } from '../json.js';
import type { Lock } from '../lock.js';
import { linkView } from '../open-transactions.js';
import { AbortableLock } from './abortable-lock.js';
import type { HeldLock } from './held-lock.js';
import type { InternalLock } from './internal-lock.js';
import type { ReleaseListener } from './releaser.js';

/** A view of a lock. What becomes of the lock is decided elsewhere: where it was acquired. */
abstract class LockView extends AbortableLock implements Lock {
  readonly #lock: InternalLock;

  constructor(lock: InternalLock) {
    super();
    this.#lock = lock;
    linkView(this, lock);
  }

  protected get viewedLock(): InternalLock {
    return this.#lock;
  }

  get key(): string {
    return this.viewedLock.key;
  }

  get keys(): readonly string[] {
    return this.viewedLock.keys;
  }

  get permit(): number {
    return this.viewedLock.permit;
  }

  get fencingToken(): bigint {
    return this.viewedLock.fencingToken;
  }

  fencingTokenOf(key: string): bigint {
    return this.viewedLock.fencingTokenOf(key);
  }

  detectLoss(): void {
    this.viewedLock.detectLoss();
  }

  isValid(): boolean {
    return this.viewedLock.isValid();
  }

  remainingMs(): number {
    return this.viewedLock.remainingMs();
  }

  throwIfLost(): void {
    this.viewedLock.throwIfLost();
  }

  extend(leaseMs: number): Promise<void> {
    return this.viewedLock.extend(leaseMs);
  }

  loseWithoutRelease(reason: LockLostError): void {
    this.viewedLock.loseWithoutRelease(reason);
  }

  abstract release(): Promise<boolean>;
  abstract [Symbol.asyncDispose](): Promise<void>;
}

/** The lock that the work of a job run or a term receives. The run or the term releases it, not the work. */
export class BorrowedLock extends LockView {
  override get signal(): AbortSignal {
    return this.viewedLock.signal;
  }

  release(): Promise<boolean> {
    return Promise.reject(cannotReleaseError(this.viewedLock));
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
  constructor(outer: InternalLock, key = outer.key) {
    super(outer);
    this.#key = key;
    outer.addView(this);
  }

  override get key(): string {
    return this.#key;
  }

  override get keys(): readonly string[] {
    return this.#key === this.viewedLock.key ? this.viewedLock.keys : [this.#key];
  }

  override get fencingToken(): bigint {
    return this.viewedLock.keys.includes(this.#key)
      ? this.viewedLock.fencingTokenOf(this.#key)
      : this.viewedLock.fencingToken;
  }

  // A lock without a fencing token of its own prints itself without one.
  override toJSON(): object {
    if (this.#key !== this.viewedLock.key || !(this.viewedLock instanceof PrintableLock))
      return super.toJSON();
    return { ...this.viewedLock.toJSON(), remainingMs: this.remainingMs() };
  }

  override [inspect.custom](): object {
    if (this.#key !== this.viewedLock.key || !(this.viewedLock instanceof PrintableLock))
      return super[inspect.custom]();
    return { ...this.viewedLock[inspect.custom](), remainingMs: this.remainingMs() };
  }

  /** The lock of which this is a view. */
  get outer(): InternalLock {
    return this.viewedLock;
  }

  get eventToken(): bigint {
    return this.viewedLock.eventToken;
  }

  get isHeld(): boolean {
    return !this.#isReleased && this.viewedLock.isHeld;
  }

  get isLost(): boolean {
    return this.viewedLock.isLost;
  }

  override get signal(): AbortSignal {
    const outer = this.viewedLock.signal;
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
    if (this.#isReleased) throw lockReleasedError(this.key);
    this.throwIfEnded();
    super.throwIfLost();
  }

  override async extend(leaseMs: number): Promise<void> {
    if (this.#isReleased) throw lockReleasedError(this.key);
    await super.extend(leaseMs);
  }

  /** @throws LockLostError if the outer lock ended before this one */
  throwIfEnded(): void {
    if (this.viewedLock.isLost) this.viewedLock.throwIfLost();
    if (!this.viewedLock.isHeld) throw outerReleasedError(this.key);
  }

  /** Whatever looks for the users of a held lock finds the outer lock itself. */
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
    this.viewedLock.removeView(this);
    return Promise.resolve(isFirst);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.release();
  }
}

const cannotReleaseError = ({ key, purpose }: InternalLock) =>
  new LockConfigError(
    purpose === 'term'
      ? `Expected the election to release the lock of its term, got release() of the leadership "${key}". It is released ` +
          `when the work of the term has ended. To let another process lead, call resign() of the candidate.`
      : `Expected the job to release the lock of its run, got release() in a run of "${key}". It is released when the ` +
          `method has ended. To end the run, return from the method.`,
    { key },
  );
