import { type Timer, systemClock } from '../../../core/clock.js';
import { StoreTimeoutError } from '../../../core/requests/store-timeout-error.js';

/** The moment from which an answer is of no more use. */
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

  /** Waits for the work, but rejects with {@link StoreTimeoutError} once it is over. */
  within<T>(work: Promise<T>): Promise<T> {
    this.#expiry ??= this.#startTimer();
    return Promise.race([work, this.#expiry]);
  }

  /** For what must not even begin when it is over. A blocked event loop may see this before the timer. */
  throwIfOver(): void {
    if (systemClock.monotonicMs() >= this.endsAtMs) throw new StoreTimeoutError(this.#timeoutMs);
  }

  /** Pauses, unless there is no time for it; says whether it did to the end. */
  async pause(pauseMs: number): Promise<boolean> {
    if (systemClock.monotonicMs() + pauseMs >= this.endsAtMs) return false;
    return await new Promise<boolean>((resolve) => {
      // SQLite has no socket that would keep the process alive for who waits.
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

  /** Whoever pauses is told that there is no more time. */
  [Symbol.dispose](): void {
    this.#timer?.cancel();
    for (const end of this.#endPauses) end();
  }

  /** Begun only when something is waited for: what answers at once needs no timer. */
  #startTimer(): Promise<never> {
    const expiry = new Promise<never>((_, reject) => {
      const leftMs = this.endsAtMs - systemClock.monotonicMs();
      this.#timer = systemClock.after(leftMs, () => reject(new StoreTimeoutError(this.#timeoutMs)));
    });
    expiry.catch(() => undefined);
    return expiry;
  }
}
