import { type Timer, systemClock } from '../../core/clock.js';
import { NoAnswerInTime } from '../../core/no-answer-in-time.js';

/** The moment from which an answer is of no more use. */
export class Deadline {
  readonly endsAtMs: number;
  readonly #limitMs: number;
  #over: Promise<never> | undefined;
  #timer: Timer | undefined;
  readonly #endPauses = new Set<() => void>();

  constructor(limitMs: number) {
    this.#limitMs = limitMs;
    this.endsAtMs = systemClock.monotonicMs() + limitMs;
  }

  /** Waits for the work, but rejects with {@link NoAnswerInTime} once it is over. */
  within<T>(work: Promise<T>): Promise<T> {
    this.#over ??= this.#watch();
    return Promise.race([work, this.#over]);
  }

  /** For what must not even begin when it is over. A blocked event loop may see this before the timer. */
  throwIfOver(): void {
    if (systemClock.monotonicMs() >= this.endsAtMs) throw new NoAnswerInTime(this.#limitMs);
  }

  /** Pauses, unless there is no time for it; says whether it did to the end. */
  async pause(pauseMs: number): Promise<boolean> {
    if (systemClock.monotonicMs() + pauseMs >= this.endsAtMs) return false;
    return await new Promise<boolean>((resolve) => {
      // SQLite has no socket that would keep the process alive for who waits.
      const timer = systemClock.after(pauseMs, () => end(true), { awaited: true });
      const stop = () => end(false);
      const end = (isWhole: boolean) => {
        timer.cancel();
        this.#endPauses.delete(stop);
        resolve(isWhole);
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
  #watch(): Promise<never> {
    const over = new Promise<never>((_, reject) => {
      const leftMs = this.endsAtMs - systemClock.monotonicMs();
      this.#timer = systemClock.after(leftMs, () => reject(new NoAnswerInTime(this.#limitMs)));
    });
    over.catch(() => undefined);
    return over;
  }
}
