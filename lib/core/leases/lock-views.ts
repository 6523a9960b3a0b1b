import { outerReleasedError } from '../error-factories.js';
import { LockConfigError } from '../errors.js';
import { PrintableLock } from '../json.js';
import type { Lock } from '../lock.js';
import { linkViewToLease } from '../open-transactions.js';
import type { Lease } from './lease.js';

/** A lock that shows the lease of another, which renews, loses and releases it. */
abstract class LockView extends PrintableLock implements Lock {
  readonly #lease: Lease;

  constructor(lease: Lease) {
    super();
    this.#lease = lease;
    linkViewToLease(this, lease);
  }

  protected get lease(): Lease {
    return this.#lease;
  }

  get key(): string {
    return this.lease.key;
  }

  get fencingToken(): bigint {
    return this.lease.fencingToken;
  }

  get signal(): AbortSignal {
    return this.lease.signal;
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

  abstract release(): Promise<boolean>;
  abstract [Symbol.asyncDispose](): Promise<void>;
}

/** The lock that the work of a job run or a term receives. The run or the term releases it, not the work. */
export class BorrowedLock extends LockView {
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
  #isReleased = false;
  #abort: AbortController | undefined;
  #abortReason: Error | undefined;

  constructor(outer: Lease) {
    super(outer);
    outer.addView(this);
  }

  override get signal(): AbortSignal {
    if (!this.#abort) {
      this.#abort = new AbortController();
      const { signal } = this.lease;
      if (signal.aborted) this.abort(signal.reason as Error);
      if (this.#abortReason) this.#abort.abort(this.#abortReason);
    }
    this.lease.detectLoss();
    return this.#abort.signal;
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

  release(): Promise<boolean> {
    const isFirst = !this.#isReleased;
    this.#isReleased = true;
    this.lease.removeView(this);
    return Promise.resolve(isFirst);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.release();
  }

  /** Called by the outer lock: it is lost, it was released, or the application ends. */
  abort(reason: Error): void {
    this.#abortReason ??= reason;
    this.#abort?.abort(reason);
  }
}

const cannotReleaseError = ({ key, purpose }: Lease) =>
  new LockConfigError(
    purpose === 'term'
      ? `Expected the election to release the lock of its term, got release() of the leadership "${key}". It is released ` +
          `when the work of the term has ended. To let another process lead, call resign() of the candidate.`
      : `Expected the job to release the lock of its run, got release() in a run of "${key}". It is released when the ` +
          `method has ended. To end the run, return from the method.`,
    { key },
  );
