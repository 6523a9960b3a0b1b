import type { CronTime } from 'cron';

const SECOND_MS = 1_000;
const MINUTE_MS = 60 * SECOND_MS;
const HOUR_MS = 60 * MINUTE_MS;
const DAY_MS = 24 * HOUR_MS;
/** From one 29 February to the next it may be eight years. */
const LONGEST_SEARCH_MS = 9 * 366 * DAY_MS;

/**
 * What a clock shows when an expression names it, without zones and changes of the clock. The `cron` package says the same,
 * but it walks there second by second, which takes milliseconds.
 */
export class CronFields {
  readonly #cronTime: CronTime;
  readonly #seconds: readonly number[];
  readonly #minutes: readonly number[];
  readonly #hours: readonly number[];
  readonly #days: ReadonlySet<number>;
  readonly #months: ReadonlySet<number>;
  readonly #weekdays: ReadonlySet<number>;

  constructor(cronTime: CronTime) {
    const [seconds, minutes, hours, days, months, weekdays] = cronTime.toJSON();
    this.#cronTime = cronTime;
    this.#seconds = valuesOf(seconds, 0, 59);
    this.#minutes = valuesOf(minutes, 0, 59);
    this.#hours = valuesOf(hours, 0, 23);
    this.#days = new Set(valuesOf(days, 1, 31));
    this.#months = new Set(valuesOf(months, 1, 12));
    this.#weekdays = new Set(valuesOf(weekdays, 0, 6));
  }

  /** The first time after this one; both as the instant at which a clock that shows UTC shows it. */
  next(localMs: number): number {
    const fromMs = (Math.floor(localMs / SECOND_MS) + 1) * SECOND_MS;
    let dayMs = Math.floor(fromMs / DAY_MS) * DAY_MS;
    const foundMs = this.#isDay(dayMs) ? this.#timeOfDay(fromMs - dayMs) : undefined;
    if (foundMs !== undefined) return dayMs + foundMs;
    do {
      dayMs = this.#dayAfter(dayMs);
      if (dayMs - fromMs > LONGEST_SEARCH_MS) return this.#asPackage(localMs);
    } while (!this.#isDay(dayMs));
    return dayMs + (this.#timeOfDay(0) ?? 0);
  }

  isNamed(localMs: number): boolean {
    return this.next(localMs - SECOND_MS) === localMs;
  }

  /** For an expression that names no time: it says so. */
  #asPackage(localMs: number): number {
    return this.#cronTime.getNextDateFrom(new Date(localMs), 'UTC').toMillis();
  }

  #dayAfter(dayMs: number): number {
    const day = new Date(dayMs);
    const [year, month] = [day.getUTCFullYear(), day.getUTCMonth()];
    return this.#months.has(month + 1) ? dayMs + DAY_MS : Date.UTC(year, month + 1, 1);
  }

  /** Where days of the month and of the week are restricted, either is enough. */
  #isDay(dayMs: number): boolean {
    const day = new Date(dayMs);
    if (!this.#months.has(day.getUTCMonth() + 1)) return false;
    const [isDate, isWeekday] = [this.#days.has(day.getUTCDate()), this.#weekdays.has(day.getUTCDay())];
    const [anyDate, anyWeekday] = [this.#days.size === 31, this.#weekdays.size === 7];
    return anyDate || anyWeekday ? isDate && isWeekday : isDate || isWeekday;
  }

  /** The first time of day that is not before this one. */
  #timeOfDay(fromMs: number): number | undefined {
    const fromHour = Math.floor(fromMs / HOUR_MS);
    const fromMinute = Math.floor((fromMs % HOUR_MS) / MINUTE_MS);
    const fromSecond = Math.floor((fromMs % MINUTE_MS) / SECOND_MS);
    for (const hour of this.#hours.filter((each) => each >= fromHour)) {
      for (const minute of this.#minutes) {
        if (hour === fromHour && minute < fromMinute) continue;
        const leastSecond = hour === fromHour && minute === fromMinute ? fromSecond : 0;
        const second = this.#seconds.find((each) => each >= leastSecond);
        if (second !== undefined) return hour * HOUR_MS + minute * MINUTE_MS + second * SECOND_MS;
      }
    }
    return undefined;
  }
}

/** `*`, or the values one by one. */
function valuesOf(field: unknown, from: number, to: number): readonly number[] {
  if (field === '*') return Array.from({ length: to - from + 1 }, (_, index) => from + index);
  const values = String(field).split(',').map(Number);
  return values.sort((one, other) => one - other);
}
