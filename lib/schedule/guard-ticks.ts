import type { CronTime } from 'cron';
import { readCron } from './job.explorer.js';
import type { LivePlan } from './live-plan.js';
import { type CronSchedule, type Plan, intervalPlan } from './plan.js';

export type GuardSchedule =
  | ({ readonly everyMs?: never } & CronSchedule)
  | {
      readonly everyMs: number;
      readonly cronTime?: never;
      readonly timeZone?: never;
      readonly utcOffset?: never;
    };

/** The ticks of a guard: those of its options, so that all replicas have the same. */
export class GuardTicks {
  readonly plan: Plan;
  readonly #schedule: LivePlan | undefined;
  readonly #known = new WeakSet<CronTime>();

  constructor(options: GuardSchedule, place: string) {
    if (options.everyMs === undefined) {
      this.#schedule = readCron(options, place);
      this.plan = this.#schedule.at(undefined);
    } else this.plan = intervalPlan(options.everyMs);
  }

  /** Whether a `CronJob` with other ticks calls. Says so once for each time that `setTime()` gives it. */
  areOthersOf(caller: unknown, nowMs: number): boolean {
    try {
      // A CronJob calls its `onTick` on itself, unless it was given a `context`.
      const time = (caller as { cronTime?: CronTime } | undefined)?.cronTime;
      if (!this.#schedule || !time || this.#known.has(time)) return false;
      const itsPlan = this.#schedule.at(time);
      // One schedule can be written in several ways. So what counts is the tick that is due and the one after it.
      const hasOthers =
        itsPlan.latest(nowMs) !== this.plan.latest(nowMs) || itsPlan.next(nowMs) !== this.plan.next(nowMs);
      if (hasOthers) this.#known.add(time);
      return hasOthers;
    } catch {
      return false; // A `context` of the user may refuse unknown names.
    }
  }
}
