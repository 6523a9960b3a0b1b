import { CronTime } from 'cron';

/** The planned instants of a job, in UTC milliseconds. */
export interface Plan {
  /** The first instant after this one; `undefined` if there is none. */
  next(afterMs: number): number | undefined;
  /** The last instant not later than this one; `undefined` if there is none. */
  latest(atMs: number): number | undefined;
  /**
   * How far a firing may stand from the instant it means. A cron job fires at the instant or, when the event loop was
   * blocked, later. An interval fires at any phase, and drifts.
   */
  readonly slackMs: { readonly early: number; readonly late: number };
}

const SECOND_MS = 1_000;
const HOUR_MS = 3_600 * SECOND_MS;
const MOST_HOURS = 3;
/** Steps back from now until an instant is found behind: seconds to years. */
const LOOK_BACK_MS = [5, 120, 7_200, 200_000, 3e6, 4e7, 3e8].map((seconds) => seconds * SECOND_MS);

/** What `@Cron` was given, as far as it says when. */
export interface CronSchedule {
  readonly cronTime: ConstructorParameters<typeof CronTime>[0];
  readonly timeZone?: string;
  readonly utcOffset?: number;
}

/** The instants of a cron expression (or a date), as the `cron` package itself computes them. */
export function cronPlan({ cronTime: source, timeZone, utcOffset }: CronSchedule): Plan {
  const cronTime = new CronTime(source, timeZone ?? null, (utcOffset ?? null) as null);
  const zone = cronTime.timeZone ?? utcZone(cronTime.utcOffset ?? 0);
  const next = (afterMs: number): number | undefined => {
    if (cronTime.realDate) return onlyAfter(Number(cronTime.source), afterMs);
    // Where a clock is set back by half an hour, the package answers instants that are past for a while.
    for (let hour = 0; ; hour += 1) {
      const foundMs = cronTime.getNextDateFrom(new Date(afterMs + hour * HOUR_MS), zone).toMillis();
      if (foundMs > afterMs || hour === MOST_HOURS) return foundMs;
    }
  };
  const isDueIn = (fromMs: number, atMs: number) => (next(fromMs) ?? Infinity) <= atMs;
  const latest = (atMs: number): number | undefined => {
    const backMs = LOOK_BACK_MS.find((ms) => isDueIn(atMs - ms, atMs));
    if (backMs === undefined) return undefined;
    // There is one after `from`, and none after `to`: until no second one fits in between.
    let [from, to] = [atMs - backMs, atMs];
    while (to - from > SECOND_MS) {
      const middle = (from + to) / 2;
      if (isDueIn(middle, atMs)) from = middle;
      else to = middle;
    }
    return next(from);
  };
  return { next, latest, slackMs: { early: SECOND_MS / 2, late: 0 } };
}

/** The instants of an interval: whole multiples of it since 1970, the same for every replica. */
export function intervalPlan(periodMs: number): Plan {
  const latest = (atMs: number) => Math.floor(atMs / periodMs) * periodMs;
  return {
    latest,
    next: (afterMs) => latest(afterMs) + periodMs,
    slackMs: { early: periodMs / 2, late: periodMs / 2 },
  };
}

const onlyAfter = (tickMs: number, afterMs: number) => (tickMs > afterMs ? tickMs : undefined);

function utcZone(offsetMinutes: number): string {
  const sign = offsetMinutes < 0 ? '-' : '+';
  const [hours, minutes] = [Math.trunc(Math.abs(offsetMinutes) / 60), Math.abs(offsetMinutes) % 60];
  return `UTC${sign}${String(hours).padStart(2, '0')}:${String(minutes).padStart(2, '0')}`;
}
