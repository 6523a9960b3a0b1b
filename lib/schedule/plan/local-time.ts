const MINUTE_MS = 60_000;
const DAY_MS = 24 * 60 * MINUTE_MS;
const SECOND_MS = 1_000;
const MAX_CACHED_OFFSETS = 64;

/** Minutes by which local time is ahead of UTC at an instant. */
interface Zone {
  offset(atMs: number): number;
}

/** The local time of a zone, written as the instant at which a UTC clock shows the same. */
export class LocalTime {
  readonly #zone: Zone;
  /** A cache: a zone computes its offset in microseconds, and the same instants are needed again and again. */
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

  /** The local time at this instant. */
  toLocal(atMs: number): number {
    return atMs + this.offsetMs(atMs);
  }

  /** The instants with this local time: two if clocks are set back over it, none if they are set forward over it. */
  toInstants(localMs: number): readonly number[] {
    const offsets = [this.offsetMs(localMs - DAY_MS), this.offsetMs(localMs + DAY_MS)];
    const found = new Set(offsets.map((offsetMs) => localMs - offsetMs));
    return [...found].filter((atMs) => this.toLocal(atMs) === localMs).sort((one, other) => one - other);
  }

  /** The last change of the offset, forward or back, if it is no longer ago than the amount of the change. */
  findChangeBefore(atMs: number): number | undefined {
    const sinceMs = atMs - Math.abs(this.offsetMs(atMs) - this.offsetMs(atMs - DAY_MS));
    return this.offsetMs(sinceMs) === this.offsetMs(atMs)
      ? undefined
      : this.#findChangeBetween(sinceMs, atMs);
  }

  /** The instant at which clocks were set forward over this local time, which therefore does not exist. */
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
