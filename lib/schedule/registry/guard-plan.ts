import type { CronTime } from 'cron';
import { createReschedulablePlan } from './job.explorer.js';
import type { ReschedulablePlan } from '../plan/reschedulable-plan.js';
import { type CronSchedule, type Plan, createIntervalPlan } from '../plan/plan.js';

export type GuardSchedule =
  | ({ readonly everyMs?: never } & CronSchedule)
  | {
      readonly everyMs: number;
      readonly cronTime?: never;
      readonly timeZone?: never;
      readonly utcOffset?: never;
    };

/** The ticks of a guard: those of its options, so that all replicas have the same. */
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

  /** Whether a `CronJob` with other ticks calls. Says so once for each time that `setTime()` gives it. */
  differsFrom(caller: unknown, nowMs: number): boolean {
    try {
      // A CronJob calls its `onTick` on itself, unless it was given a `context`.
      const time = (caller as { cronTime?: CronTime } | undefined)?.cronTime;
      if (!this.#cronPlan || !time || this.#reportedTimes.has(time)) return false;
      const callerPlan = this.#cronPlan.getPlan(time);
      // One schedule can be written in several ways. So what counts is the tick that is due and the one after it.
      const hasOtherTicks =
        callerPlan.latest(nowMs) !== this.plan.latest(nowMs) ||
        callerPlan.next(nowMs) !== this.plan.next(nowMs);
      if (hasOtherTicks) this.#reportedTimes.add(time);
      return hasOtherTicks;
    } catch {
      return false; // A `context` of the user may refuse unknown names.
    }
  }
}
