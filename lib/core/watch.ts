import type { Entry } from './agenda.js';
import type { Spot } from './list.js';

/** What its keeper has planned for a grant. */
export class Watch<Kept> implements Entry {
  readonly kept: Kept;
  /** `Infinity` while a renewal is under way, or if there shall be none. */
  renewAtMs: number;
  failures = 0;
  /** When to look next. */
  atMs = 0;
  spot: Spot<Entry> | undefined;
  /** Where it stands among all that is kept. */
  listed: Spot<Watch<Kept>> | undefined;
  readonly #look: (watch: Watch<Kept>) => void;

  constructor(kept: Kept, renewAtMs: number, look: (watch: Watch<Kept>) => void) {
    this.kept = kept;
    this.renewAtMs = renewAtMs;
    this.#look = look;
  }

  run(): void {
    this.#look(this);
  }
}
