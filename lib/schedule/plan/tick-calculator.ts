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
 * A tick that is longer ago than this many times what timers may fire early is not the tick of a firing if the next one is
 * near. In shorter periods, a blocked event loop may be that late.
 */
const LONG_AGO_RATIO = 10;

/**
 * Computes for which planned instant a timer fired. Usually this is the instant after the last one, whether the timer fired
 * early or late; only a firing so late that further instants have passed skips to the newest, or to the next one if it is
 * about to come. So replicas with different clocks and loads compute the same ticks. The first tick after a change of the
 * plan is the one due in the new plan.
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
    const dueMs = this.#findPlannedTick(plan, firedAtMs) ?? plan.latest(firedAtMs);
    const tickMs = findNearTick(plan, firedAtMs, dueMs) ?? dueMs;
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

/** The next instant, if the timer fired early for it after a gap: the tick that is due was left out, or has run already. */
function findNearTick({ next, toleranceMs: { early } }: Plan, firedAtMs: number, dueMs = -Infinity) {
  if (firedAtMs - dueMs <= early * LONG_AGO_RATIO) return undefined;
  const nextMs = next(firedAtMs);
  return nextMs !== undefined && nextMs <= firedAtMs + early ? nextMs : undefined;
}
