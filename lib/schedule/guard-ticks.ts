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

/** Enough to tell schedules apart that differ on some days of the week only. */
const COMPARED_TICKS = 10;

/** The ticks of a guard: those of its options, so that all replicas have the same. */
export class GuardTicks {
  readonly plan: Plan;
  readonly #schedule: LivePlan | undefined;
  readonly #compared = new WeakSet<CronTime>();

  constructor(options: GuardSchedule, place: string) {
    if (options.everyMs === undefined) {
      this.#schedule = readCron(options, place);
      this.plan = this.#schedule.at(undefined);
    } else this.plan = intervalPlan(options.everyMs);
  }

  /** Whether it is called by a `CronJob` with other ticks. Says so once for each time that `setTime()` gives it. */
  areOthersOf(caller: unknown, nowMs: number): boolean {
    try {
      // A CronJob calls its `onTick` on itself, unless it was given a `context`.
      const time = (caller as { cronTime?: CronTime } | undefined)?.cronTime;
      if (!this.#schedule || !time || this.#compared.has(time)) return false;
      this.#compared.add(time);
      return !haveSameTicks(this.#schedule.at(time), this.plan, nowMs);
    } catch {
      return false; // A `context` of the user may refuse unknown names.
    }
  }
}

/** Judged by the next ones, as one schedule can be written in several ways. */
function haveSameTicks(one: Plan, other: Plan, fromMs: number): boolean {
  let tickMs: number | undefined = fromMs;
  for (let count = 0; count < COMPARED_TICKS && tickMs !== undefined; count += 1) {
    const nextMs = one.next(tickMs);
    if (nextMs !== other.next(tickMs)) return false;
    tickMs = nextMs;
  }
  return true;
}
