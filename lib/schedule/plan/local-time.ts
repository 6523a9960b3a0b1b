const MINUTE_MS = 60_000;
const DAY_MS = 24 * 60 * MINUTE_MS;
const SECOND_MS = 1_000;
const MAX_CACHED_OFFSETS = 64;

/** Minutes by which local time is ahead of UTC at an instant. */
interface Zone {
  offset(atMs: number): number;
}

/** The local time of a zone. It is written as the instant at which a clock that shows UTC would show it. */
export class LocalTime {
  readonly #zone: Zone;
  /** A zone takes microseconds to say it, and is asked for the same instants again and again. */
  readonly #offsetsMs = new Map<number, number>();

  constructor(zone: Zone) {
    this.#zone = zone;
  }

  offsetMs(atMs: number): number {
    const known = this.#offsetsMs.get(atMs);
    if (known !== undefined) return known;
    if (this.#offsetsMs.size >= MAX_CACHED_OFFSETS) this.#offsetsMs.clear();
    const offsetMs = this.#zone.offset(atMs) * MINUTE_MS;
    this.#offsetsMs.set(atMs, offsetMs);
    return offsetMs;
  }

  /** What a clock shows at this instant. */
  toLocal(atMs: number): number {
    return atMs + this.offsetMs(atMs);
  }

  /** When a clock shows this: twice if it is set back then, and never if it is set forward over it. */
  toInstants(localMs: number): readonly number[] {
    const offsets = [this.offsetMs(localMs - DAY_MS), this.offsetMs(localMs + DAY_MS)];
    const found = new Set(offsets.map((offsetMs) => localMs - offsetMs));
    return [...found].filter((atMs) => this.toLocal(atMs) === localMs).sort((one, other) => one - other);
  }

  /** When the clock was set, forward or back, if that is not longer ago than it was set by. */
  findChangeBefore(atMs: number): number | undefined {
    const sinceMs = atMs - Math.abs(this.offsetMs(atMs) - this.offsetMs(atMs - DAY_MS));
    return this.offsetMs(sinceMs) === this.offsetMs(atMs)
      ? undefined
      : this.#findChangeBetween(sinceMs, atMs);
  }

  /** When the clock was set forward over this, which it therefore never shows. */
  findForwardChange(localMs: number): number {
    return this.#findChangeBetween(localMs - DAY_MS, localMs + DAY_MS);
  }

  #findChangeBetween(fromMs: number, toMs: number): number {
    const before = this.offsetMs(fromMs);
    let [from, to] = [Math.floor(fromMs / SECOND_MS), Math.floor(toMs / SECOND_MS)];
    while (to - from > 1) {
      const middle = Math.floor((from + to) / 2);
      if (this.offsetMs(middle * SECOND_MS) === before) from = middle;
      else to = middle;
    }
    return to * SECOND_MS;
  }
}
