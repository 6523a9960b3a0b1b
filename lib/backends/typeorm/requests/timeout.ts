import { systemClock } from '../../../core/clock.js';
import { StoreTimeoutError } from '../../../core/requests/store-timeout-error.js';
import { withTimeout } from '../../../core/requests/with-timeout.js';

/** The moment after which nothing more is sent over a connection, and a silent connection is given up. */
export class Timeout {
  readonly endsAtMs: number;
  readonly #timeoutMs: number;

  constructor(timeoutMs: number) {
    this.#timeoutMs = timeoutMs;
    this.endsAtMs = systemClock.monotonicMs() + timeoutMs;
  }

  /** Reads the clock, because after a blocked event loop a timer may be late. */
  get leftMs(): number {
    return this.endsAtMs - systemClock.monotonicMs();
  }

  get error(): StoreTimeoutError {
    return new StoreTimeoutError(this.#timeoutMs);
  }

  /** @throws StoreTimeoutError */
  throwIfOver(): void {
    if (this.leftMs <= 0) throw this.error;
  }

  /** Waits for the work, but rejects with {@link StoreTimeoutError} once the timeout has ended. */
  async within<T>(work: Promise<T>): Promise<T> {
    if (!(await withTimeout(systemClock, this.leftMs, work))) throw this.error;
    return await work;
  }

  /** Pauses, unless the timeout would end before. Resolves to whether it did pause. */
  async pause(pauseMs: number): Promise<boolean> {
    if (pauseMs >= this.leftMs) return false;
    // SQLite has no socket that would keep the process alive while a caller waits.
    await new Promise<void>((resolve) => systemClock.after(pauseMs, resolve, { awaited: true }));
    return true;
  }
}
