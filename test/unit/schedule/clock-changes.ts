import { CronTime } from 'cron';
import { createCronPlan } from '../../../lib/schedule/plan/plan.js';
import { TickCalculator } from '../../../lib/schedule/plan/tick-calculator.js';

const MINUTE_MS = 60_000;
const HOUR_MS = 60 * MINUTE_MS;
const DAY_MS = 24 * HOUR_MS;
const FIELDS = {
  ...({ hourCycle: 'h23', year: 'numeric', month: 'numeric', day: 'numeric' } as const),
  ...({ hour: 'numeric', minute: 'numeric', second: 'numeric' } as const),
};

/** Expressions of jobs that fire near a change of the clock, or during it. */
export const EXPRESSIONS = [
  ...['30 2 * * *', '0 2 * * *', '59 2 * * *', '30 1 * * *', '0 1 * * *', '30 0 * * *', '0 0 * * *'],
  ...['30 23 * * *', '0 3 * * *', '30 3 * * *', '45 1 * * *', '10 2 * * *', '15 22 * * *'],
  ...['0 * * * *', '*/15 * * * *', '*/30 * * * *', '20,50 * * * *', '5 */2 * * *', '0 */3 * * *'],
  ...['*/20 2 * * *', '*/30 0-4 * * *', '30 2,3 * * *', '0 0,3 * * *', '30 1,2 * * *', '30 1-3 * * 0,6'],
  ...['0 2 * * 0', '30 2 25-31 * *', '15 30 2 * * *', '*/30 59 * * * *', '*/20 30 1-2 * * *'],
  ...['0-58 * * * *', '30 0-22 * * *', '30 2 1-30 * *', '30 2 * 1-11 *', '30 2 * * 0-5', '30 2 15 * 0-5'],
];

export interface ClockChange {
  readonly timeZone: string;
  readonly atMs: number;
}

/** All changes of a year. Zones that change their clocks alike are represented by one of them, or all are included. */
export function clockChanges(year: number, { isEach = false } = {}): ClockChange[] {
  const found = new Map<string, ClockChange[]>();
  for (const timeZone of Intl.supportedValuesOf('timeZone')) {
    const changes = changesOf(timeZone, year);
    const key = isEach ? timeZone : changes.map(({ atMs, offsets }) => `${atMs} ${offsets}`).join();
    if (!found.has(key)) found.set(key, changes);
  }
  return [...found.values()].flat();
}

function changesOf(timeZone: string, year: number) {
  const format = new Intl.DateTimeFormat('en', { timeZone, timeZoneName: 'longOffset', year: 'numeric' });
  const offsetAt = (ms: number) => format.format(ms).split(' ').pop()!;
  const changes: (ClockChange & { readonly offsets: string })[] = [];
  for (let ms = Date.UTC(year, 0, 1); ms < Date.UTC(year + 1, 0, 1); ms += DAY_MS) {
    if (offsetAt(ms) === offsetAt(ms + DAY_MS)) continue;
    let [from, to] = [ms, ms + DAY_MS];
    while (to - from > MINUTE_MS) {
      const middle = (from + to) / 2;
      if (offsetAt(middle) === offsetAt(ms)) from = middle;
      else to = middle;
    }
    const atMs = Math.round(to / MINUTE_MS) * MINUTE_MS;
    changes.push({ timeZone, atMs, offsets: `${offsetAt(ms)} ${offsetAt(ms + DAY_MS)}` });
  }
  return changes;
}

/** The next firing of the `cron` package, computed at an instant. */
function cronAsked(cronTime: CronTime): (nowMs: number) => number {
  return memoized((nowMs) => {
    const realNow = Date.now;
    try {
      Date.now = () => nowMs;
      return cronTime.sendAt().toMillis();
    } finally {
      Date.now = realNow;
    }
  });
}

/** The firings of a job that is started at this instant: each firing computes the next one. */
function firings(nextOf: (nowMs: number) => number, startMs: number, untilMs: number): number[] {
  const found: number[] = [];
  for (let nowMs = startMs; nowMs < untilMs;) {
    const nextMs = nextOf(nowMs);
    if (nextMs <= nowMs) throw new Error(`cron goes back from ${iso(nowMs)} to ${iso(nextMs)}`);
    found.push(nextMs);
    nowMs = nextMs;
  }
  return found;
}

/** A cache, because many jobs compute the same. */
function memoized<Answer>(ask: (ms: number) => Answer): (ms: number) => Answer {
  const known = new Map<number, Answer>();
  return (ms) => {
    if (!known.has(ms)) known.set(ms, ask(ms));
    return known.get(ms)!;
  };
}

export interface Comparison {
  starts: number;
  firings: number;
  /** Firings of jobs that were started in between, at which a job that was started long ago does not fire. */
  besidesPlan: number;
  readonly wrong: string[];
}

/**
 * Compares our plan with what `cron` fires around a change, for a job that was started long ago and for one that is started at
 * each quarter of an hour. Around a change `cron` also fires at times that the expression does not name (for 3:30 also at
 * 2:30): these are not ticks.
 */
export function compare(
  { timeZone, atMs }: ClockChange,
  expression: string,
  stepMs = HOUR_MS / 4,
): Comparison {
  const result: Comparison = { starts: 0, firings: 0, besidesPlan: 0, wrong: [] };
  const nextOf = cronAsked(new CronTime(expression, timeZone));
  const { next, latest, ...rest } = createCronPlan({ cronTime: expression, timeZone });
  const plan = { next: memoized(next), latest: memoized(latest), ...rest };
  const endMs = atMs + 4 * HOUR_MS;
  const chain = firings(nextOf, atMs - 30 * HOUR_MS, endMs + 2 * HOUR_MS).filter(
    (ms) => isNamed(expression, timeZone, ms) || isLeftOut(expression, { timeZone, atMs }, ms),
  );
  const planned = new Set(chain);
  const expectSame = (what: string, found: number | undefined, wanted: number | undefined) => {
    if (found !== wanted)
      result.wrong.push(`${timeZone} ${expression}: ${what} is ${iso(found)}, not ${iso(wanted)}`);
  };
  for (let startMs = atMs - 4 * HOUR_MS; startMs <= endMs; startMs += stepMs) {
    result.starts += 1;
    for (const ms of [startMs, startMs + 400]) {
      expectSame(
        `next(${iso(ms)})`,
        plan.next(ms),
        chain.find((tickMs) => tickMs > ms),
      );
    }
    const lastMs = chain.findLast((tickMs) => tickMs <= startMs);
    if (lastMs !== undefined) expectSame(`latest(${iso(startMs)})`, plan.latest(startMs), lastMs);
    const tracker = new TickCalculator({ plan }, startMs);
    for (const firedMs of firings(nextOf, startMs, Math.min(startMs + 3 * HOUR_MS, endMs))) {
      result.firings += 1;
      if (!planned.has(firedMs)) result.besidesPlan += 1;
      const tickMs = chain.findLast((ms) => ms <= firedMs);
      const what = `the tick of a firing at ${iso(firedMs)}, started at ${iso(startMs)},`;
      if (tickMs !== undefined) expectSame(what, tracker.calculateTick(firedMs)?.tickMs, tickMs);
    }
  }
  return result;
}

/** How far the clocks of a zone are ahead of UTC. */
function offsetMs(timeZone: string, atMs: number): number {
  const parts = new Intl.DateTimeFormat('en-US', { timeZone, ...FIELDS }).formatToParts(atMs);
  const [year, month, day, hour, minute, second] = ['year', 'month', 'day', 'hour', 'minute', 'second'].map(
    (name) => Number(parts.find(({ type }) => type === name)!.value),
  );
  return Date.UTC(year!, month! - 1, day, hour! % 24, minute, second) - Math.floor(atMs / 1_000) * 1_000;
}

/** Whether a firing at this instant may be for a named time over which the clock was set forward. */
function isLeftOut(expression: string, { timeZone, atMs }: ClockChange, firedMs: number): boolean {
  const beforeMs = offsetMs(timeZone, atMs - MINUTE_MS);
  const gapMs = offsetMs(timeZone, atMs) - beforeMs;
  return (
    firedMs >= atMs &&
    firedMs <= atMs + gapMs &&
    namedAfter(expression, atMs + beforeMs) < atMs + beforeMs + gapMs
  );
}

/** Whether the expression names the local time of this instant. */
function isNamed(expression: string, timeZone: string, atMs: number): boolean {
  const localMs = atMs + offsetMs(timeZone, atMs);
  return namedAfter(expression, localMs) === localMs;
}

/** The first time that the expression names, from this one on. */
const namedAfter = (expression: string, localMs: number) =>
  new CronTime(expression, 'UTC').getNextDateFrom(new Date(localMs - 1), 'UTC').toMillis();

const iso = (ms: number | undefined) => (ms === undefined ? 'none' : new Date(ms).toISOString());
