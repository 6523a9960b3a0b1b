import type { Plan } from './plan.js';

/** A planned instant, and the time until the next one. */
export interface Tick {
  readonly tickMs: number;
  readonly periodMs: number;
}

export const createTick = (plan: Plan, tickMs: number): Tick => ({
  tickMs,
  periodMs: (plan.next(tickMs) ?? Infinity) - tickMs,
});

/**
 * Computes for which planned instant a timer fired. Usually this is the instant after the last one, whether the timer fired
 * early or late; only a firing so late that further instants have passed skips to the newest. So replicas with different clocks
 * and loads compute the same ticks. The first tick after a change of the plan is the one due in the new plan.
 */
export class TickCalculator {
  readonly #job: { readonly plan: Plan | undefined };
  #plan: Plan | undefined;
  #lastMs: number;

  constructor(job: { readonly plan: Plan | undefined }, startedAtMs: number) {
    this.#job = job;
    this.#plan = job.plan;
    this.#lastMs = startedAtMs;
  }

  /** The tick of a timer that fired at `firedAtMs`; `undefined` if none was due. */
  calculateTick(firedAtMs: number): Tick | undefined {
    const { plan } = this.#job;
    // A job that runs once for each deployment has one tick, at whatever time its timer fires.
    if (!plan) return { tickMs: firedAtMs, periodMs: Infinity };
    if (plan !== this.#plan)
      this.#lastMs = (plan.latest(firedAtMs + plan.toleranceMs.early) ?? firedAtMs) - 1;
    this.#plan = plan;
    const tickMs = this.#findPlannedTick(plan, firedAtMs) ?? plan.latest(firedAtMs);
    if (tickMs === undefined) return undefined;
    this.#lastMs = tickMs;
    return createTick(plan, tickMs);
  }

  /** The instant after the last one; `undefined` if the clock was set back or the process slept past that instant. */
  #findPlannedTick({ next, toleranceMs }: Plan, firedAtMs: number): number | undefined {
    const tickMs = next(this.#lastMs);
    if (tickMs === undefined || tickMs > firedAtMs + toleranceMs.early) return undefined;
    const following = next(tickMs) ?? Infinity;
    return following + toleranceMs.late <= firedAtMs ? undefined : tickMs;
  }
}
