import { type Timer, systemClock } from '../../../../core/clock.js';

/** Whoever is back sooner was hardly away. */
const UNAVAILABLE_AFTER_MS = 1_000;
/** Whoever comes and goes is told of no more often. */
const RECHECK_MS = 4_000;

/** Tells once when a server has gone, and once when it is back. */
export class Availability {
  readonly #currentFault: () => string | undefined;
  readonly #onChange: (fault: string | undefined) => void;
  #isUnavailable = false;
  #timer: Timer | undefined;

  /** `look`: why it does not count now. */
  constructor(currentFault: () => string | undefined, onChange: (fault: string | undefined) => void) {
    this.#currentFault = currentFault;
    this.#onChange = onChange;
  }

  /** It may have gone. */
  check(): void {
    if (this.#isUnavailable || this.#timer || this.#currentFault() === undefined) return;
    this.#timer = systemClock.after(UNAVAILABLE_AFTER_MS, () => this.#update());
  }

  close(): void {
    this.#timer?.cancel();
    this.#timer = undefined;
    this.#isUnavailable = false;
  }

  #update(): void {
    this.#timer = undefined;
    const fault = this.#currentFault();
    if (this.#isUnavailable !== (fault !== undefined)) {
      this.#isUnavailable = fault !== undefined;
      this.#onChange(fault);
    }
    if (this.#isUnavailable) this.#timer = systemClock.after(RECHECK_MS, () => this.#update());
  }
}
