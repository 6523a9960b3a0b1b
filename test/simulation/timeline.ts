interface Event {
  readonly atMs: number;
  readonly order: number;
  readonly run: Run;
}

/** Something that happens. `false`: nothing came of it. */
type Run = () => unknown;

/** True time, which only the simulation knows, and what happens in it. */
export class Timeline {
  /** A heap: each is due no later than those at twice its place, and one further. */
  readonly #events: Event[] = [];
  #order = 0;
  #nowMs = 0;

  get nowMs(): number {
    return this.#nowMs;
  }

  at(atMs: number, run: Run): void {
    const events = this.#events;
    this.#order += 1;
    const event = { atMs: Math.max(atMs, this.#nowMs), order: this.#order, run };
    let index = events.length;
    while (index > 0) {
      const above = (index - 1) >> 1;
      if (!isEarlier(event, events[above]!)) break;
      events[index] = events[above]!;
      index = above;
    }
    events[index] = event;
  }

  in(delayMs: number, run: Run): void {
    this.at(this.#nowMs + delayMs, run);
  }

  /** Takes what happens next, if it does so until then, and moves time to it; or else to then. */
  next(untilMs: number): Run | undefined {
    const first = this.#events[0];
    if (!first || first.atMs > untilMs) {
      this.#nowMs = Math.max(this.#nowMs, untilMs);
      return undefined;
    }
    this.#nowMs = first.atMs;
    this.#sift(this.#events.pop()!);
    return first.run;
  }

  /** The last one takes the place of the first, and sinks to where it belongs. */
  #sift(event: Event): void {
    const events = this.#events;
    if (events.length === 0) return;
    let index = 0;
    for (;;) {
      let below = index * 2 + 1;
      if (below >= events.length) break;
      if (below + 1 < events.length && isEarlier(events[below + 1]!, events[below]!)) below += 1;
      if (!isEarlier(events[below]!, event)) break;
      events[index] = events[below]!;
      index = below;
    }
    events[index] = event;
  }
}

const isEarlier = (one: Event, other: Event) =>
  one.atMs < other.atMs || (one.atMs === other.atMs && one.order < other.order);
