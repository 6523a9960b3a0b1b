import { type Timer, systemClock } from '../clock.js';

const MIN_SWEEP_MS = 20;

/** Calls back when the earliest of the times has come, but not again within 20 ms. */
export class SweepTimer {
  readonly #onDue: () => void;
  #timer: Timer | undefined;
  #atMs = Infinity;

  constructor(onDue: () => void) {
    this.#onDue = onDue;
  }

  /** `atMs` is on the monotonic clock. */
  wakeAt(atMs: number): void {
    if (atMs >= this.#atMs) return;
    this.#timer?.cancel();
    const nowMs = systemClock.monotonicMs();
    this.#atMs = Math.max(atMs, nowMs + MIN_SWEEP_MS);
    this.#timer = systemClock.after(this.#atMs - nowMs, () => {
      this.#atMs = Infinity;
      this.#onDue();
    });
  }

  cancel(): void {
    this.#timer?.cancel();
    this.#timer = undefined;
    this.#atMs = Infinity;
  }
}
