import type { Plan } from './plan.js';

/** A planned instant, and how far it lies from the next one. */
export interface Tick {
  readonly tickMs: number;
  readonly periodMs: number;
}

export const createTick = (plan: Plan, tickMs: number): Tick => ({
  tickMs,
  periodMs: (plan.next(tickMs) ?? Infinity) - tickMs,
});

/**
 * Tells for which planned instant a timer fired. The instant was planned before the timer fired: when that was, early
 * or late, only decides whether instants in between were slept through. So replicas with different clocks and loads
 * speak of the same ticks.
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

  /** The next instant in turn, unless the clock was set back or it was slept through. */
  #findPlannedTick(firedAtMs: number): number | undefined {
    const { next, toleranceMs } = this.#plan;
    const tickMs = next(this.#lastMs);
    if (tickMs === undefined || tickMs > firedAtMs + toleranceMs.early) return undefined;
    const following = next(tickMs) ?? Infinity;
    return following + toleranceMs.late <= firedAtMs ? undefined : tickMs;
  }
}

/** The same for a job whose plan may change: what is due then is the first tick of the new one. */
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
