import type { Clock } from '../../core/clock.js';
import type { Plan } from './plan.js';

/** Since when this process has each plan. A time from before that was not due by that plan. */
export class PlanAges {
  readonly #clock: Clock;
  /** On the monotonic clock. */
  readonly #seenAtMs = new WeakMap<Plan, number>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Returns whether the plan is new to this process. */
  remember(plan: Plan): boolean {
    if (this.#seenAtMs.has(plan)) return false;
    this.#seenAtMs.set(plan, this.#clock.monotonicMs());
    return true;
  }

  /** On the clock that shows `nowMs`. A plan that is not remembered is as old as this call. */
  sinceMs(plan: Plan, nowMs: number): number {
    const monotonicMs = this.#clock.monotonicMs();
    return nowMs - (monotonicMs - (this.#seenAtMs.get(plan) ?? monotonicMs));
  }
}
