import { type Timer, systemClock } from '../../../core/clock.js';
import { setImmediate } from '../../../core/real-timers.js';

/** Detects that no reply at all has arrived for long, although requests are open. */
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

  /** Watches one request until its promise settles. */
  async watch<T>(result: Promise<T>): Promise<T> {
    this.onRequest();
    try {
      return await result;
    } finally {
      this.onReply();
    }
  }

  /** A request is open until {@link onReply} is called for it. */
  onRequest(): void {
    if (this.#openRequests === 0) this.#restart();
    this.#openRequests += 1;
    this.#schedule();
  }

  onReply(): void {
    this.#openRequests -= 1;
    this.#restart();
  }

  /** Stops until the next request. */
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
    // Perhaps this process was blocked, so replies that have arrived are read first.
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
