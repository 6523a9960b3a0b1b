import type { CronTime } from 'cron';
import {
  type CronSchedule,
  type Plan,
  type ReschedulablePlan,
  createIntervalPlan,
  createReschedulablePlan,
} from '../plan/plan.js';

export type GuardSchedule =
  | ({ readonly everyMs?: never } & CronSchedule)
  | {
      readonly everyMs: number;
      readonly cronTime?: never;
      readonly timeZone?: never;
      readonly utcOffset?: never;
    };

/** The ticks of a guard. They follow from its options alone, so that all replicas have the same ticks. */
export class GuardPlan {
  readonly plan: Plan;
  readonly #cronPlan: ReschedulablePlan | undefined;
  readonly #reportedTimes = new WeakSet<CronTime>();

  constructor(options: GuardSchedule, location: string) {
    if (options.everyMs === undefined) {
      this.#cronPlan = createReschedulablePlan(options, location);
      this.plan = this.#cronPlan.getPlan(undefined);
    } else this.plan = createIntervalPlan(options.everyMs);
  }

  /** Whether the caller is a `CronJob` with other ticks. `true` once for each time that `setTime()` sets. */
  differsFrom(caller: unknown, nowMs: number): boolean {
    try {
      // A CronJob calls its `onTick` on itself, unless it was given a `context`.
      const time = (caller as { cronTime?: CronTime } | undefined)?.cronTime;
      if (!this.#cronPlan || !time || this.#reportedTimes.has(time)) return false;
      const callerPlan = this.#cronPlan.getPlan(time);
      if (callerPlan === this.plan) return false;
      // One schedule can be written in several ways. So compare the due tick and the one after it, not the texts.
      const hasOtherTicks =
        callerPlan.latest(nowMs) !== this.plan.latest(nowMs) ||
        callerPlan.next(nowMs) !== this.plan.next(nowMs);
      if (hasOtherTicks) this.#reportedTimes.add(time);
      return hasOtherTicks;
    } catch {
      return false; // The user's `context` may be a proxy that throws when an unknown property is read.
    }
  }
}
