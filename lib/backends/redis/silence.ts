import { type Timer, systemClock } from '../../core/clock.js';
import { setImmediate } from '../../core/real-time.js';

/** Notices that the questions over a connection are open for long without any answer. */
export class Silence {
  readonly #limitMs: number;
  readonly #onSilence: () => void;
  #open = 0;
  #sinceMs = 0;
  #timer: Timer | undefined;

  constructor(limitMs: number, onSilence: () => void) {
    this.#limitMs = limitMs;
    this.#onSilence = onSilence;
  }

  get isTooLong(): boolean {
    return this.#leftMs <= 0;
  }

  async broken<T>(answer: Promise<T>): Promise<T> {
    if (this.#open === 0) this.#begin();
    this.#open += 1;
    this.#watch();
    try {
      return await answer;
    } finally {
      this.#open -= 1;
      this.#begin();
    }
  }

  /** Looks no more, until another question is asked. */
  stop(): void {
    this.#timer?.cancel();
    this.#timer = undefined;
  }

  get #leftMs(): number {
    return this.#open === 0 ? Infinity : this.#sinceMs + this.#limitMs - systemClock.monotonicMs();
  }

  #begin(): void {
    this.#sinceMs = systemClock.monotonicMs();
  }

  #watch(): void {
    if (this.#timer || this.#open === 0) return;
    // It may be we who were kept from everything: what has arrived is heard first.
    this.#timer = systemClock.after(Math.max(this.#leftMs, 0), () => void setImmediate(() => this.#look()));
  }

  #look(): void {
    this.#timer = undefined;
    if (this.isTooLong) this.#onSilence();
    else this.#watch();
  }
}
