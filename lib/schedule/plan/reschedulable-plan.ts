import { CronTime } from 'cron';
import { type CronSchedule, type Plan, createCronPlan } from './plan.js';

/** The plan of a cron job whose schedule may change at run time, as by `setTime()`. */
export class ReschedulablePlan {
  #plan: Plan;
  #scheduleText: string;
  #lastCronTime: CronTime | undefined;

  /** @throws what the `cron` package throws for a schedule that it does not understand */
  constructor(schedule: CronSchedule) {
    const { cronTime, timeZone, utcOffset } = schedule;
    this.#plan = createCronPlan(schedule);
    this.#scheduleText = formatCronTime(
      new CronTime(cronTime, timeZone ?? null, (utcOffset ?? null) as null),
    );
  }

  /** Returns the same plan as before, unless the job has another schedule now. */
  getPlan(cronTime: CronTime | undefined): Plan {
    if (!cronTime || cronTime === this.#lastCronTime) return this.#plan;
    const text = formatCronTime(cronTime);
    if (text !== this.#scheduleText) this.#plan = createCronPlan(readSchedule(cronTime));
    this.#scheduleText = text;
    this.#lastCronTime = cronTime;
    return this.#plan;
  }
}

const formatCronTime = ({ realDate, source, timeZone, utcOffset }: CronTime) =>
  JSON.stringify([realDate ? Number(source) : source, timeZone, utcOffset]);

/** The `CronTime` may come from another copy of the `cron` package, so it is parsed again. */
const readSchedule = ({ realDate, source, timeZone, utcOffset }: CronTime): CronSchedule => ({
  cronTime: realDate ? new Date(Number(source)) : source,
  ...(utcOffset == null ? timeZone != null && { timeZone } : { utcOffset }),
});
