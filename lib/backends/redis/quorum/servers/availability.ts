import { type Timer, systemClock } from '../../../../core/clock.js';

/** How long a server must be without a vote before that is reported. */
const UNAVAILABLE_AFTER_MS = 1_000;
/** How often a server that is reported as unavailable is checked again, and so the least time between two reports. */
const RECHECK_MS = 4_000;

/** Reports once that a server has had no vote for a while, and once that it has one again. */
export class Availability {
  readonly #currentFault: () => string | undefined;
  readonly #onChange: (fault: string | undefined) => void;
  #isUnavailable = false;
  #timer: Timer | undefined;

  /** `currentFault` returns why the server has no vote now, or `undefined` if it has one. */
  constructor(currentFault: () => string | undefined, onChange: (fault: string | undefined) => void) {
    this.#currentFault = currentFault;
    this.#onChange = onChange;
  }

  /** The server may have lost its vote. */
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
