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
 * and loads compute the same ticks.
 */
export class TickCalculator {
  readonly #plan: Plan;
  #lastMs: number;

  constructor(plan: Plan, startedAtMs: number) {
    this.#plan = plan;
    this.#lastMs = startedAtMs;
  }

  /** The tick of a timer that fired at `firedAtMs`; `undefined` if none was due. */
  calculateTick(firedAtMs: number): Tick | undefined {
    const tickMs = this.#findPlannedTick(firedAtMs) ?? this.#plan.latest(firedAtMs);
    if (tickMs === undefined) return undefined;
    this.#lastMs = tickMs;
    return createTick(this.#plan, tickMs);
  }

  /** The instant after the last one; `undefined` if the clock was set back or the process slept past that instant. */
  #findPlannedTick(firedAtMs: number): number | undefined {
    const { next, toleranceMs } = this.#plan;
    const tickMs = next(this.#lastMs);
    if (tickMs === undefined || tickMs > firedAtMs + toleranceMs.early) return undefined;
    const following = next(tickMs) ?? Infinity;
    return following + toleranceMs.late <= firedAtMs ? undefined : tickMs;
  }
}

/** The same for a job whose plan may change. The first tick after a change is the one due in the new plan. */
export class ReschedulableTickCalculator {
  readonly #job: { readonly plan: Plan | undefined };
  #plan: Plan;
  #calculator: TickCalculator;

  constructor(job: { readonly plan: Plan | undefined }, plan: Plan, startedAtMs: number) {
    this.#job = job;
    this.#plan = plan;
    this.#calculator = new TickCalculator(plan, startedAtMs);
  }

  calculateTick(firedAtMs: number): Tick | undefined {
    const { plan = this.#plan } = this.#job;
    if (plan !== this.#plan) {
      const dueMs = plan.latest(firedAtMs + plan.toleranceMs.early) ?? firedAtMs;
      this.#plan = plan;
      this.#calculator = new TickCalculator(plan, dueMs - 1);
    }
    return this.#calculator.calculateTick(firedAtMs);
  }
}
