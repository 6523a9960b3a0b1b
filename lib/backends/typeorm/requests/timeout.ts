import { type Timer, systemClock } from '../../../core/clock.js';
import { StoreTimeoutError } from '../../../core/requests/store-timeout-error.js';

/** The moment after which a result is of no use. */
export class Timeout {
  readonly endsAtMs: number;
  readonly #timeoutMs: number;
  #expiry: Promise<never> | undefined;
  #timer: Timer | undefined;
  readonly #endPauses = new Set<() => void>();

  constructor(timeoutMs: number) {
    this.#timeoutMs = timeoutMs;
    this.endsAtMs = systemClock.monotonicMs() + timeoutMs;
  }

  /** Waits for the work, but rejects with {@link StoreTimeoutError} once the timeout has ended. */
  within<T>(work: Promise<T>): Promise<T> {
    this.#expiry ??= this.#startTimer();
    return Promise.race([work, this.#expiry]);
  }

  /**
   * For work that must not begin after the timeout. Reads the clock, because after a blocked event loop the timer may be late.
   *
   * @throws StoreTimeoutError
   */
  throwIfOver(): void {
    if (systemClock.monotonicMs() >= this.endsAtMs) throw new StoreTimeoutError(this.#timeoutMs);
  }

  /** Pauses, unless the timeout ends before. Resolves to whether the pause was complete. */
  async pause(pauseMs: number): Promise<boolean> {
    if (systemClock.monotonicMs() + pauseMs >= this.endsAtMs) return false;
    return await new Promise<boolean>((resolve) => {
      // SQLite has no socket that would keep the process alive while a caller waits.
      const timer = systemClock.after(pauseMs, () => end(true), { awaited: true });
      const stop = () => end(false);
      const end = (isComplete: boolean) => {
        timer.cancel();
        this.#endPauses.delete(stop);
        resolve(isComplete);
      };
      this.#endPauses.add(stop);
    });
  }

  /** Ends all pauses, which resolve to `false`. */
  [Symbol.dispose](): void {
    this.#timer?.cancel();
    for (const end of this.#endPauses) end();
  }

  /** Started by the first wait only: a synchronous result needs no timer. */
  #startTimer(): Promise<never> {
    const expiry = new Promise<never>((_, reject) => {
      const leftMs = this.endsAtMs - systemClock.monotonicMs();
      this.#timer = systemClock.after(leftMs, () => reject(new StoreTimeoutError(this.#timeoutMs)));
    });
    expiry.catch(() => undefined);
    return expiry;
  }
}
