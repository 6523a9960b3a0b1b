import { CronTime } from 'cron';
import { CronCalendar } from './cron-calendar.js';

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
  readonly toleranceMs: { readonly early: number; readonly late: number };
}

const SECOND_MS = 1_000;
const MAX_TIMER_MS = 2 ** 31 - 1;
/** Steps back from now until an instant is found behind: seconds to years. */
const SEARCH_STEPS_MS = [5, 120, 7_200, 200_000, 3e6, 4e7, 3e8].map((seconds) => seconds * SECOND_MS);

/** What `@Cron` was given, as far as it says when. */
export interface CronSchedule {
  readonly cronTime: ConstructorParameters<typeof CronTime>[0];
  readonly timeZone?: string;
  readonly utcOffset?: number;
}

/** The instants of a cron expression (or a date). */
export function createCronPlan({ cronTime: source, timeZone, utcOffset }: CronSchedule): Plan {
  const cronTime = new CronTime(source, timeZone ?? null, (utcOffset ?? null) as null);
  const calendar = new CronCalendar(cronTime);
  const next = (afterMs: number): number | undefined =>
    cronTime.realDate ? onlyAfter(Number(cronTime.source), afterMs) : calendar.next(afterMs);
  const latest = (atMs: number): number | undefined => {
    const isDue = (tickMs: number | undefined): tickMs is number => tickMs !== undefined && tickMs <= atMs;
    const backMs = SEARCH_STEPS_MS.find((ms) => isDue(next(atMs - ms)));
    if (backMs === undefined) return undefined;
    let fromMs = next(atMs - backMs);
    // None is due after `toMs`.
    for (let toMs = atMs; fromMs !== undefined && isDue(next(fromMs));) {
      const middleMs = (fromMs + toMs) / 2;
      const foundMs = next(middleMs);
      if (isDue(foundMs)) fromMs = foundMs;
      else toMs = middleMs;
    }
    return fromMs;
  };
  return { next, latest, toleranceMs: { early: SECOND_MS / 2, late: 0 } };
}

/** The instants of an interval: whole multiples of it since 1970, the same for every replica. */
export function createIntervalPlan(givenMs: number): Plan {
  const periodMs = toTimerMs(givenMs);
  const latest = (atMs: number) => Math.floor(atMs / periodMs) * periodMs;
  return {
    latest,
    next: (afterMs) => latest(afterMs) + periodMs,
    toleranceMs: { early: periodMs / 2, late: periodMs / 2 },
  };
}

/** As `setInterval` takes it: in whole ms, and 1 for what it cannot wait for. */
const toTimerMs = (givenMs: number) => (givenMs >= 1 && givenMs <= MAX_TIMER_MS ? Math.trunc(givenMs) : 1);

const onlyAfter = (tickMs: number, afterMs: number) => (tickMs > afterMs ? tickMs : undefined);
