import type { Lock } from './lock.js';

/** A lock asked for again by the chain that holds it. The outer lock alone is renewed, lost and released. */
export class JoinedLock implements Lock {
  readonly #outer: Lock;
  #isReleased = false;

  constructor(outer: Lock) {
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
