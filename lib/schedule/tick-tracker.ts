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
