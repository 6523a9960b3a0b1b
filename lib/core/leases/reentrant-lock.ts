import { LockLostError } from '../errors.js';
import { PrintableLock } from '../json.js';
import type { Lock } from '../lock.js';
import { linkViewToLease } from '../open-transactions.js';
import type { Lease, ReentrantView } from './lease.js';

/**
 * The lock of a nested `acquire` with `reentrant: true`: a view of the outer lock, which is the only one that is
 * renewed, lost and released. If the outer lock is released while this one is in use, this one is lost.
 */
export class ReentrantLock extends PrintableLock implements Lock, ReentrantView {
  readonly #outer: Lease;
  readonly #onLost: (error: LockLostError) => void;
  #isReleased = false;
  #abort: AbortController | undefined;
  #abortReason: Error | undefined;

  constructor(outer: Lease, onLost: (error: LockLostError) => void) {
    super();
    this.#outer = outer;
    linkViewToLease(this, outer);
    this.#onLost = onLost;
    outer.reentrantViews.add(this);
  }

  get key(): string {
    return this.#outer.key;
  }

  get fencingToken(): bigint {
    return this.#outer.fencingToken;
  }

  get signal(): AbortSignal {
    if (!this.#abort) {
      this.#abort = new AbortController();
      const { signal } = this.#outer;
      if (signal.aborted) this.abort(signal.reason as Error);
      if (this.#abortReason) this.#abort.abort(this.#abortReason);
    }
    this.#outer.detectLoss();
    return this.#abort.signal;
  }

  isValid(): boolean {
    return !this.#isReleased && this.#outer.isValid();
  }

  remainingMs(): number {
    return this.#isReleased ? 0 : this.#outer.remainingMs();
  }

  throwIfLost(): void {
    if (!this.#outer.isLost && !this.#outer.isHeld) throw this.#releasedTooEarlyError();
    this.#outer.throwIfLost();
  }

  /** @throws LockLostError if the outer lock ended before this one */
  throwIfEnded(): void {
    if (this.#outer.isLost) this.#outer.throwIfLost();
    if (!this.#outer.isHeld) throw this.#releasedTooEarlyError();
  }

  extend(leaseMs: number): Promise<void> {
    return this.#outer.extend(leaseMs);
  }

  release(): Promise<boolean> {
    const isFirst = !this.#isReleased;
    this.#isReleased = true;
    this.#outer.reentrantViews.delete(this);
    return Promise.resolve(isFirst);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.release();
  }

  abort(reason: Error): void {
    this.#abortReason ??= reason;
    this.#abort?.abort(reason);
  }

  onOuterReleased(): void {
    const error = this.#releasedTooEarlyError();
    this.abort(error);
    this.#onLost(error);
  }

  #releasedTooEarlyError(): LockLostError {
    return new LockLostError(
      `Lock "${this.key}" was released by the outer work before the inner work that re-entered it had ended. Await the ` +
        `inner work inside the outer work. If neither started the other, a queue or pool ran one in the asynchronous ` +
        `context of the other: bind its tasks with AsyncResource.bind().`,
      { key: this.key },
    );
  }
}
