import { type Timer, systemClock } from '../../../core/clock.js';

/** Whoever is back sooner was hardly away. */
const AWAY_AFTER_MS = 1_000;
/** Whoever comes and goes is told of no more often. */
const LOOK_AGAIN_MS = 4_000;

/** Tells once when a server has gone, and once when it is back. */
export class Attendance {
  readonly #look: () => string | undefined;
  readonly #tell: (fault: string | undefined) => void;
  #isAway = false;
  #later: Timer | undefined;

  /** `look`: why it does not count now. */
  constructor(look: () => string | undefined, tell: (fault: string | undefined) => void) {
    this.#look = look;
    this.#tell = tell;
  }

  /** It may have gone. */
  check(): void {
    if (this.#isAway || this.#later || this.#look() === undefined) return;
    this.#later = systemClock.after(AWAY_AFTER_MS, () => this.#decide());
  }

  close(): void {
    this.#later?.cancel();
    this.#later = undefined;
    this.#isAway = false;
  }

  #decide(): void {
    this.#later = undefined;
    const fault = this.#look();
    if (this.#isAway !== (fault !== undefined)) {
      this.#isAway = fault !== undefined;
      this.#tell(fault);
    }
    if (this.#isAway) this.#later = systemClock.after(LOOK_AGAIN_MS, () => this.#decide());
  }
}
