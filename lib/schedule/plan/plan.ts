import { createHash } from 'node:crypto';
import { CronTime } from 'cron';
import { systemClock } from '../../core/clock.js';
import { LockConfigError } from '../../core/errors.js';
import { formatReason, formatValue } from '../../core/format.js';
import { CronCalendar } from './cron-calendar.js';

/** The planned instants of a job, in UTC milliseconds. */
export interface Plan {
  /** The first instant after this one; `undefined` if there is none. */
  next(afterMs: number): number | undefined;
  /** The last instant not later than this one; `undefined` if there is none. */
  latest(atMs: number): number | undefined;
  /**
   * How far from its planned instant a timer may fire. A cron job fires at the instant or, if the event loop was blocked,
   * later. An interval fires at any phase of its period, and drifts.
   */
  readonly toleranceMs: { readonly early: number; readonly late: number };
  /** Plans with the same text have the same instants. */
  readonly text: string;
}

/** A short name that all replicas with the same schedule compute. */
export const planIdOf = ({ text }: Plan): string =>
  createHash('sha256').update(text).digest('base64url').slice(0, PLAN_ID_LENGTH);

const PLAN_ID_LENGTH = 8;
const SECOND_MS = 1_000;
/** How far `latest` goes back in search of a past instant: 5 s to about 10 years. */
const SEARCH_STEPS_MS = [5, 120, 7_200, 200_000, 3e6, 4e7, 3e8].map((seconds) => seconds * SECOND_MS);

/** The arguments of `@Cron` that define its times. */
export interface CronSchedule {
  readonly cronTime: ConstructorParameters<typeof CronTime>[0];
  readonly timeZone?: string;
  readonly utcOffset?: number;
}

/**
 * The instants of a cron expression or a date.
 *
 * @throws what the `cron` package throws for a schedule that it does not understand
 */
export const createCronPlan = (schedule: CronSchedule): Plan => planOf(parse(schedule));

const parse = ({ cronTime, timeZone, utcOffset }: CronSchedule) =>
  new CronTime(cronTime, timeZone ?? null, (utcOffset ?? null) as null);

function planOf(cronTime: CronTime): Plan {
  const calendar = new CronCalendar(cronTime);
  const next = (afterMs: number): number | undefined =>
    cronTime.realDate ? onlyAfter(Number(cronTime.source), afterMs) : calendar.next(afterMs);
  const latest = (atMs: number): number | undefined => {
    const isDue = (tickMs: number | undefined): tickMs is number => tickMs !== undefined && tickMs <= atMs;
    const backMs = SEARCH_STEPS_MS.find((ms) => isDue(next(atMs - ms)));
    if (backMs === undefined) return undefined;
    let fromMs = next(atMs - backMs);
    // Invariant: no instant after `toMs` is due.
    for (let toMs = atMs; fromMs !== undefined && isDue(next(fromMs));) {
      const middleMs = (fromMs + toMs) / 2;
      const foundMs = next(middleMs);
      if (isDue(foundMs)) fromMs = foundMs;
      else toMs = middleMs;
    }
    return fromMs;
  };
  const toleranceMs = { early: SECOND_MS / 2, late: 0 };
  return { next, latest, toleranceMs, text: formatCronTime(cronTime) };
}

/** The instants of an interval: whole multiples of it since 1970, which are the same in every replica. */
export function createIntervalPlan(givenMs: number): Plan {
  // `setInterval` uses whole ms.
  const periodMs = Math.trunc(givenMs);
  const latest = (atMs: number) => Math.floor(atMs / periodMs) * periodMs;
  return {
    latest,
    next: (afterMs) => latest(afterMs) + periodMs,
    toleranceMs: { early: periodMs / 2, late: periodMs / 2 },
    text: `every ${periodMs} ms`,
  };
}

const onlyAfter = (tickMs: number, afterMs: number) => (tickMs > afterMs ? tickMs : undefined);

/** The plan of a cron job whose schedule may change at run time, as by `setTime()`. */
export class ReschedulablePlan {
  #plan: Plan;
  #scheduleText: string;
  #lastCronTime: CronTime | undefined;

  /** @throws LockConfigError for a schedule that the `cron` package does not understand, or that never fires */
  constructor(schedule: CronSchedule, location: string) {
    try {
      const cronTime = parse(schedule);
      this.#plan = planOf(cronTime);
      this.#scheduleText = formatCronTime(cronTime);
    } catch (cause) {
      throw new LockConfigError(
        `${location}: expected a schedule that the cron package understands, got ${formatSchedule(schedule)} (${formatReason(cause)}).`,
        { cause },
      );
    }
    const nowMs = systemClock.wallMs();
    if (this.#plan.next(nowMs) === undefined && this.#plan.latest(nowMs) === undefined) {
      throw new LockConfigError(
        `${location}: expected a schedule that fires at some time, got ${formatValue(schedule.cronTime)}. Check its days and ` +
          `months: 30 February, for example, does not exist.`,
      );
    }
  }

  /** Returns the same plan as before, unless the job has another schedule now. */
  getPlan(cronTime?: CronTime): Plan {
    if (!cronTime || cronTime === this.#lastCronTime) return this.#plan;
    const text = formatCronTime(cronTime);
    if (text !== this.#scheduleText) this.#plan = createCronPlan(readCronTime(cronTime));
    this.#scheduleText = text;
    this.#lastCronTime = cronTime;
    return this.#plan;
  }
}

const formatSchedule = ({ cronTime, timeZone }: CronSchedule) =>
  formatValue(cronTime) + (timeZone === undefined ? '' : ` with the time zone ${formatValue(timeZone)}`);

const formatCronTime = ({ realDate, source, timeZone, utcOffset }: CronTime) =>
  JSON.stringify([realDate ? Number(source) : source, timeZone, utcOffset]);

/** Whether a timer has other times than the schedule that it was created with. */
export const isRescheduled = (cronTime: CronTime, schedule: CronSchedule): boolean =>
  formatCronTime(cronTime) !== formatCronTime(parse(schedule));

/** The `CronTime` may come from another copy of the `cron` package, so it is parsed again. */
export const readCronTime = ({ realDate, source, timeZone, utcOffset }: CronTime): CronSchedule => ({
  cronTime: realDate ? new Date(Number(source)) : source,
  ...(utcOffset == null ? timeZone != null && { timeZone } : { utcOffset }),
});
