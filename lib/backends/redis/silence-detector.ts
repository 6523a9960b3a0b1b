import { type Timer, systemClock } from '../../core/clock.js';
import { setImmediate } from '../../core/real-time.js';

/** Notices that the questions over a connection are open for long without any answer. */
export class SilenceDetector {
  readonly #maxSilenceMs: number;
  readonly #onSilence: () => void;
  #openRequests = 0;
  #sinceMs = 0;
  #timer: Timer | undefined;

  constructor(maxSilenceMs: number, onSilence: () => void) {
    this.#maxSilenceMs = maxSilenceMs;
    this.#onSilence = onSilence;
  }

  get isSilentTooLong(): boolean {
    return this.#remainingMs <= 0;
  }

  async watch<T>(result: Promise<T>): Promise<T> {
    if (this.#openRequests === 0) this.#restart();
    this.#openRequests += 1;
    this.#schedule();
    try {
      return await result;
    } finally {
      this.#openRequests -= 1;
      this.#restart();
    }
  }

  /** Looks no more, until another question is asked. */
  stop(): void {
    this.#timer?.cancel();
    this.#timer = undefined;
  }

  get #remainingMs(): number {
    return this.#openRequests === 0
      ? Infinity
      : this.#sinceMs + this.#maxSilenceMs - systemClock.monotonicMs();
  }

  #restart(): void {
    this.#sinceMs = systemClock.monotonicMs();
  }

  #schedule(): void {
    if (this.#timer || this.#openRequests === 0) return;
    // It may be we who were kept from everything: what has arrived is heard first.
    this.#timer = systemClock.after(
      Math.max(this.#remainingMs, 0),
      () => void setImmediate(() => this.#check()),
    );
  }

  #check(): void {
    this.#timer = undefined;
    if (this.isSilentTooLong) this.#onSilence();
    else this.#schedule();
  }
}
