import { CronTime } from 'cron';
import { type CronSchedule, type Plan, createCronPlan } from './plan.js';

/** The plan of a cron job whose time may be changed while it runs. */
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

  /** The same plan as before, unless the job has been given another time. */
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

/** It may come from another copy of the package, so it is read anew. */
const readSchedule = ({ realDate, source, timeZone, utcOffset }: CronTime): CronSchedule => ({
  cronTime: realDate ? new Date(Number(source)) : source,
  ...(utcOffset == null ? timeZone != null && { timeZone } : { utcOffset }),
});
