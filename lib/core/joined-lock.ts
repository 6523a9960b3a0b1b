import { LockLostError } from './errors.js';
import type { Lease } from './lease.js';
import type { Lock } from './lock.js';

/** A lock asked for again by the chain that holds it. The outer lock alone is renewed, lost and released. */
export class JoinedLock implements Lock {
  readonly #outer: Lease;
  #isReleased = false;

  constructor(outer: Lease) {
    this.#outer = outer;
  }

  get key(): string {
    return this.#outer.key;
  }

  get fencingToken(): bigint {
    return this.#outer.fencingToken;
  }

  get signal(): AbortSignal {
    return this.#outer.signal;
  }

  isValid(): boolean {
    return !this.#isReleased && this.#outer.isValid();
  }

  remainingMs(): number {
    return this.#isReleased ? 0 : this.#outer.remainingMs();
  }

  throwIfLost(): void {
    this.#outer.throwIfLost();
  }

  /** @throws LockLostError if the outer lock ended before what joined it */
  throwIfEnded(): void {
    if (this.#outer.isLost) this.#outer.throwIfLost();
    if (this.#outer.isHeld) return;
    throw new LockLostError(
      `Lock "${this.key}" was given back by the work that took it before the work that joined it had ended. Await the ` +
        `inner work inside the outer one.`,
      { key: this.key },
    );
  }

  extend(leaseMs: number): Promise<void> {
    return this.#outer.extend(leaseMs);
  }

  release(): Promise<boolean> {
    const isFirst = !this.#isReleased;
    this.#isReleased = true;
    return Promise.resolve(isFirst);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.release();
  }
}
