import { CronTime } from 'cron';
import { type CronSchedule, type Plan, cronPlan } from './plan.js';

/** The plan of a cron job whose time may be changed while it runs. */
export class LivePlan {
  #plan: Plan;
  #text: string;
  #seen: CronTime | undefined;

  /** @throws what the `cron` package throws for a schedule that it does not understand */
  constructor(schedule: CronSchedule) {
    const { cronTime, timeZone, utcOffset } = schedule;
    this.#plan = cronPlan(schedule);
    this.#text = textOf(new CronTime(cronTime, timeZone ?? null, (utcOffset ?? null) as null));
  }

  /** The same plan as before, unless the job has been given another time. */
  at(cronTime: CronTime | undefined): Plan {
    if (!cronTime || cronTime === this.#seen) return this.#plan;
    const text = textOf(cronTime);
    if (text !== this.#text) this.#plan = cronPlan(scheduleOf(cronTime));
    this.#text = text;
    this.#seen = cronTime;
    return this.#plan;
  }
}

const textOf = ({ realDate, source, timeZone, utcOffset }: CronTime) =>
  JSON.stringify([realDate ? Number(source) : source, timeZone, utcOffset]);

/** It may come from another copy of the package, so it is read anew. */
const scheduleOf = ({ realDate, source, timeZone, utcOffset }: CronTime): CronSchedule => ({
  cronTime: realDate ? new Date(Number(source)) : source,
  ...(utcOffset == null ? timeZone != null && { timeZone } : { utcOffset }),
});
