import type { Answers, Freed, LockBackend, LockRecord, Requests } from '../core/backend.js';
import type { Clock } from '../core/clock.js';

/** A backend with a plug to pull. */
export class SwitchableBackend implements LockBackend {
  readonly name: string;
  readonly clock?: Clock;
  isReachable = true;
  readonly #backend: LockBackend;

  constructor(backend: LockBackend) {
    this.#backend = backend;
    this.name = backend.name;
    if (backend.clock) this.clock = backend.clock;
  }

  exchange(requests: Requests, limitMs: number): Promise<Answers> {
    return this.#ask(() => this.#backend.exchange(requests, limitMs));
  }

  inspect(key: string, limitMs: number): Promise<LockRecord | null> {
    return this.#ask(() => this.#backend.inspect(key, limitMs));
  }

  forceRelease(key: string, fencingToken: bigint, limitMs: number): Promise<boolean> {
    return this.#ask(() => this.#backend.forceRelease(key, fencingToken, limitMs));
  }

  note(key: string, text: string, limitMs: number): Promise<void> {
    return this.#ask(() => this.#backend.note(key, text, limitMs));
  }

  notes(key: string, limitMs: number): Promise<readonly string[]> {
    return this.#ask(() => this.#backend.notes(key, limitMs));
  }

  onFreed(listener: (freed: Freed) => void): () => void {
    return this.#backend.onFreed?.(listener) ?? (() => undefined);
  }

  close(): Promise<void> {
    return this.#backend.close();
  }

  async #ask<T>(ask: () => Promise<T>): Promise<T> {
    if (!this.isReachable)
      throw new Error('the store is unreachable, as LockControl.disconnect() was called');
    return ask();
  }
}
