import { type Clock, sleep } from '../../core/clock.js';

/** Sleeps, and can be made to wake earlier. */
export class Sleeper {
  readonly #clock: Clock;
  readonly #stopping: AbortSignal;
  #interruption = new AbortController();
  /** On the monotonic clock; in the past while it does not sleep. */
  #wakesAtMs = -Infinity;

  constructor(clock: Clock, stopping: AbortSignal) {
    this.#clock = clock;
    this.#stopping = stopping;
  }

  /** Resolves after `delayMs`, earlier after {@link wakeIn}, or when the application stops. Never rejects. */
  async sleep(delayMs: number): Promise<void> {
    const interrupt = () => this.#interruption.abort();
    this.#wakesAtMs = this.#clock.monotonicMs() + delayMs;
    this.#stopping.addEventListener('abort', interrupt);
    for (let leftMs = delayMs; leftMs > 0 && !this.#stopping.aborted; leftMs = this.#leftMs) {
      this.#interruption = new AbortController();
      await sleep(this.#clock, leftMs, this.#interruption.signal);
    }
    this.#stopping.removeEventListener('abort', interrupt);
    this.#wakesAtMs = -Infinity;
  }

  /** Makes it wake after this time, unless it wakes earlier. */
  wakeIn(delayMs: number): void {
    const wakesAtMs = this.#clock.monotonicMs() + delayMs;
    if (wakesAtMs >= this.#wakesAtMs) return;
    this.#wakesAtMs = wakesAtMs;
    this.#interruption.abort();
  }

  get #leftMs(): number {
    return this.#wakesAtMs - this.#clock.monotonicMs();
  }
}
