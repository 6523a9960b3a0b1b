import { setTimeout as sleep } from 'node:timers/promises';
import { type Timer, systemClock } from '../../core/clock.js';
import { NoAnswerInTime } from '../../core/no-answer-in-time.js';

/** The moment from which an answer is of no more use. */
export class Deadline {
  readonly endsAtMs: number;
  readonly #limitMs: number;
  readonly #over: Promise<never>;
  #timer: Timer | undefined;

  constructor(limitMs: number) {
    this.#limitMs = limitMs;
    this.endsAtMs = systemClock.monotonicMs() + limitMs;
    this.#over = new Promise((_, reject) => {
      this.#timer = systemClock.after(limitMs, () => reject(new NoAnswerInTime(limitMs)));
    });
    this.#over.catch(() => undefined);
  }

  /** Waits for the work, but rejects with {@link NoAnswerInTime} once it is over. */
  within<T>(work: Promise<T>): Promise<T> {
    return Promise.race([work, this.#over]);
  }

  /** For what must not even begin when it is over. A blocked event loop may see this before the timer. */
  throwIfOver(): void {
    if (systemClock.monotonicMs() >= this.endsAtMs) throw new NoAnswerInTime(this.#limitMs);
  }

  /** Pauses, unless there is no time for it. */
  async pause(pauseMs: number): Promise<boolean> {
    if (systemClock.monotonicMs() + pauseMs >= this.endsAtMs) return false;
    await sleep(pauseMs);
    return true;
  }

  [Symbol.dispose](): void {
    this.#timer?.cancel();
  }
}
