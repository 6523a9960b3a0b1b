import type { BatchResult, LockBackend, RequestBatch } from '../core/backend.js';
import type { ReleaseNotice } from '../core/store-notices.js';
import type { ListRequest, LockPage, LockRecord } from '../core/lock-record.js';
import type { TickState } from '../core/tick.js';
import type { Clock } from '../core/clock.js';

/** A backend that a test can disconnect from its store. */
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

  execute(requests: RequestBatch, timeoutMs: number): Promise<BatchResult> {
    return this.#whileReachable(() => this.#backend.execute(requests, timeoutMs));
  }

  inspect(key: string, timeoutMs: number): Promise<LockRecord | null> {
    return this.#whileReachable(() => this.#backend.inspect(key, timeoutMs));
  }

  list(request: ListRequest, timeoutMs: number): Promise<LockPage> {
    return this.#whileReachable(() => this.#backend.list(request, timeoutMs));
  }

  forceRelease(key: string, fencingToken: bigint, timeoutMs: number): Promise<boolean> {
    return this.#whileReachable(() => this.#backend.forceRelease(key, fencingToken, timeoutMs));
  }

  readTicks(key: string, timeoutMs: number): Promise<TickState> {
    return this.#whileReachable(() => this.#backend.readTicks(key, timeoutMs));
  }

  registerTicks(key: string, timeoutMs: number): Promise<TickState> {
    return this.#whileReachable(() => this.#backend.registerTicks(key, timeoutMs));
  }

  setPaused(key: string, isPaused: boolean, timeoutMs: number): Promise<void> {
    return this.#whileReachable(() => this.#backend.setPaused(key, isPaused, timeoutMs));
  }

  appendHistory(key: string, text: string, timeoutMs: number): Promise<void> {
    return this.#whileReachable(() => this.#backend.appendHistory(key, text, timeoutMs));
  }

  readHistory(key: string, timeoutMs: number): Promise<readonly string[]> {
    return this.#whileReachable(() => this.#backend.readHistory(key, timeoutMs));
  }

  onReleased(listener: (notice: ReleaseNotice) => void): () => void {
    return this.#backend.onReleased?.(listener) ?? (() => undefined);
  }

  close(): Promise<void> {
    return this.#backend.close();
  }

  async #whileReachable<T>(request: () => Promise<T>): Promise<T> {
    if (!this.isReachable)
      throw new Error('the store is unreachable because LockControl.disconnect() was called');
    return request();
  }
}
