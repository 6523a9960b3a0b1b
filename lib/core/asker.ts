import { setMaxListeners } from 'node:events';
import type { Clock } from './clock.js';

interface AskerSettings {
  readonly clock: Clock;
  readonly waitMs: number;
  /** Each of them ends the wait with its reason. */
  readonly signals: readonly AbortSignal[];
}

const nobody = () => undefined;

/** Somebody who stands in line for a key: how long still, how to be woken, and what makes him leave. */
export class Asker implements Disposable {
  readonly #clock: Clock;
  readonly #startedAtMs: number;
  readonly #waitMs: number;
  readonly #signals: readonly AbortSignal[];
  #isWoken = false;
  #endPause: () => void = nobody;
  #endAsking: (reason: unknown) => void = nobody;

  constructor({ clock, waitMs, signals }: AskerSettings) {
    this.#clock = clock;
    this.#startedAtMs = clock.monotonicMs();
    this.#waitMs = waitMs;
    this.#signals = signals;
    for (const signal of signals) {
      setMaxListeners(0, signal); // Any number may wait with one signal.
      signal.addEventListener('abort', this.#leave);
    }
  }

  get waitedMs(): number {
    return this.#clock.monotonicMs() - this.#startedAtMs;
  }

  get leftMs(): number {
    return Math.max(this.#waitMs - this.waitedMs, 0);
  }

  /** @throws the reason of the signal that ended the wait */
  throwIfLeaving(): void {
    for (const signal of this.#signals) signal.throwIfAborted();
  }

  /** The key may be free: ask at once. A wake-up during a question shortens the pause after it. */
  wake(): void {
    this.#isWoken = true;
    this.#endPause();
  }

  /** Sleeps until the time is over, a wake-up comes, or the asker has to leave. */
  async pause(delayMs: number): Promise<void> {
    this.throwIfLeaving();
    if (!this.#isWoken) {
      const timer = this.#clock.after(delayMs, () => this.#endPause(), { awaited: true });
      await new Promise<void>((resolve) => (this.#endPause = resolve));
      timer.cancel();
    }
    this.#isWoken = false;
    this.throwIfLeaving();
  }

  /**
   * Waits for the answer, which never rejects, but not once the asker has to leave: `onLeft` then gets what comes
   * after all.
   */
  async whileHere<T>(answer: Promise<T>, onLeft: (answer: T) => void): Promise<T> {
    const leaving = new Promise<never>((_, reject) => (this.#endAsking = reject));
    try {
      return await Promise.race([answer, leaving]);
    } catch (reason) {
      void answer.then(onLeft);
      throw reason;
    }
  }

  [Symbol.dispose](): void {
    for (const signal of this.#signals) signal.removeEventListener('abort', this.#leave);
  }

  readonly #leave = (event: Event): void => {
    this.#endPause();
    this.#endAsking((event.target as AbortSignal).reason);
  };
}
