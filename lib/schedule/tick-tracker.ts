import type { Plan } from './plan.js';

/** A planned instant, and how far it lies from the next one. */
export interface Tick {
  readonly tickMs: number;
  readonly periodMs: number;
}

export const tickAt = (plan: Plan, tickMs: number): Tick => ({
  tickMs,
  periodMs: (plan.next(tickMs) ?? Infinity) - tickMs,
});

/**
 * Tells for which planned instant a timer fired. The instant was planned before the timer fired: when that was, early
 * or late, only decides whether instants in between were slept through. So replicas with different clocks and loads
 * speak of the same ticks.
 */
export class TickTracker {
  readonly #plan: Plan;
  #lastMs: number;

  constructor(plan: Plan, startedAtMs: number) {
    this.#plan = plan;
    this.#lastMs = startedAtMs;
  }

  /** The tick of a timer that fired at `firedAtMs`; `undefined` if none was due. */
  fired(firedAtMs: number): Tick | undefined {
    const tickMs = this.#planned(firedAtMs) ?? this.#plan.latest(firedAtMs);
    if (tickMs === undefined) return undefined;
    this.#lastMs = tickMs;
    return tickAt(this.#plan, tickMs);
  }

  /** The next instant in turn, unless the clock was set back or it was slept through. */
  #planned(firedAtMs: number): number | undefined {
    const { next, slackMs } = this.#plan;
    const tickMs = next(this.#lastMs);
    if (tickMs === undefined || tickMs > firedAtMs + slackMs.early) return undefined;
    const following = next(tickMs) ?? Infinity;
    return following + slackMs.late <= firedAtMs ? undefined : tickMs;
  }
}

/** The same for a job whose plan may change: what is due then is the first tick of the new one. */
export class LiveTickTracker {
  readonly #job: { readonly plan: Plan | undefined };
  #plan: Plan;
  #tracker: TickTracker;

  constructor(job: { readonly plan: Plan | undefined }, plan: Plan, startedAtMs: number) {
    this.#job = job;
    this.#plan = plan;
    this.#tracker = new TickTracker(plan, startedAtMs);
  }

  fired(firedAtMs: number): Tick | undefined {
    const { plan = this.#plan } = this.#job;
    if (plan !== this.#plan) {
      const dueMs = plan.latest(firedAtMs + plan.slackMs.early) ?? firedAtMs;
      this.#plan = plan;
      this.#tracker = new TickTracker(plan, dueMs - 1);
    }
    return this.#tracker.fired(firedAtMs);
  }
}
