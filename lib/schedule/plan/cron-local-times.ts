import { CronTime } from 'cron';

const SECOND_MS = 1_000;
const MINUTE_MS = 60 * SECOND_MS;
const HOUR_MS = 60 * MINUTE_MS;
const DAY_MS = 24 * HOUR_MS;
/** The search ends after nine years: two 29 Februaries may lie eight years apart. */
const MAX_SEARCH_MS = 9 * 366 * DAY_MS;

/** A field of a cron expression. */
interface Field {
  readonly position: number;
  readonly first: number;
  readonly last: number;
  /** An expression without other restrictions, with `?` for this field. */
  readonly alone: string;
  /** A UTC instant at which the field has its last value. */
  readonly lastAtMs: number;
}

const FIELD_COUNT = 6;
// As early as possible: if a test has set the clock to 1970, the package searches only eight years ahead of that.
const utcMs = (month: number, day: number, ...time: number[]) => Date.UTC(1970, month, day, ...time);
const SECOND: Field = {
  ...{ position: 0, first: 0, last: 59 },
  ...{ alone: '? * * * * *', lastAtMs: utcMs(0, 1, 0, 0, 59) },
};
const MINUTE: Field = {
  ...{ position: 1, first: 0, last: 59 },
  ...{ alone: '0 ? * * * *', lastAtMs: utcMs(0, 1, 0, 59) },
};
const HOUR: Field = { position: 2, first: 0, last: 23, alone: '0 0 ? * * *', lastAtMs: utcMs(0, 1, 23) };
const DAY: Field = { position: 3, first: 1, last: 31, alone: '0 0 0 ? * *', lastAtMs: utcMs(0, 31) };
const MONTH: Field = { position: 4, first: 1, last: 12, alone: '0 0 0 1 ? *', lastAtMs: utcMs(11, 1) };
/** 3 January 1970 was a Saturday. */
const WEEKDAY: Field = { position: 5, first: 0, last: 6, alone: '0 0 0 * * ?', lastAtMs: utcMs(0, 3) };

/**
 * The local times that a cron expression names, without time zones and daylight saving. The `cron` package computes the same,
 * but steps through the seconds one by one, which takes milliseconds.
 */
export class CronLocalTimes {
  /** Whether the expression names no time at all, such as 30 February. */
  readonly isEmpty: boolean;
  readonly #seconds: readonly number[];
  readonly #minutes: readonly number[];
  readonly #hours: readonly number[];
  readonly #days: ReadonlySet<number>;
  readonly #months: ReadonlySet<number>;
  readonly #weekdays: ReadonlySet<number>;

  constructor(cronTime: CronTime) {
    const valuesOf = (field: Field) => readValues(cronTime, field);
    this.#seconds = valuesOf(SECOND);
    this.#minutes = valuesOf(MINUTE);
    this.#hours = valuesOf(HOUR);
    this.#days = new Set(valuesOf(DAY));
    this.#months = new Set(valuesOf(MONTH));
    this.#weekdays = new Set(valuesOf(WEEKDAY));
    this.isEmpty = this.#dayFrom(0) === undefined;
  }

  /** The first named time after this one. Both are written as if the zone were UTC. Call it only if {@link isEmpty} is false. */
  next(localMs: number): number {
    const fromMs = (Math.floor(localMs / SECOND_MS) + 1) * SECOND_MS;
    const todayMs = Math.floor(fromMs / DAY_MS) * DAY_MS;
    const foundMs = this.#isDay(todayMs) ? this.#timeOfDay(fromMs - todayMs) : undefined;
    if (foundMs !== undefined) return todayMs + foundMs;
    return (this.#dayFrom(this.#dayAfter(todayMs)) ?? NaN) + (this.#timeOfDay(0) ?? NaN);
  }

  matches(localMs: number): boolean {
    return this.next(localMs - SECOND_MS) === localMs;
  }

  /** The first day that is not before this one. */
  #dayFrom(fromMs: number): number | undefined {
    let dayMs = fromMs;
    while (!this.#isDay(dayMs)) {
      if (dayMs - fromMs > MAX_SEARCH_MS) return undefined;
      dayMs = this.#dayAfter(dayMs);
    }
    return dayMs;
  }

  #dayAfter(dayMs: number): number {
    const day = new Date(dayMs);
    const [year, month] = [day.getUTCFullYear(), day.getUTCMonth()];
    return this.#months.has(month + 1) ? dayMs + DAY_MS : Date.UTC(year, month + 1, 1);
  }

  /** As in cron: if both the days of the month and the weekdays are restricted, a match of either is enough. */
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

function readValues(cronTime: CronTime, field: Field): readonly number[] {
  const { position, first, last } = field;
  const found = cronTime.toJSON()[position];
  if (found !== '*') {
    const values = String(found).split(',').map(Number);
    return values.sort((one, other) => one - other);
  }
  // The package also writes '*' for a field that names all values except the last one.
  const to = includesLastValue(cronTime, field) ? last : last - 1;
  return Array.from({ length: to - first + 1 }, (_, index) => first + index);
}

/** Asks the package: the field alone, in an expression without other restrictions, fires at its last value or does not. */
function includesLastValue({ source }: CronTime, { position, alone, lastAtMs }: Field): boolean {
  const fields = String(source).trim().split(/\s+/);
  if (fields.length === 1) return true; // A preset such as `@hourly`. None of them omits only the last value of a field.
  const text = fields.at(position - FIELD_COUNT) ?? '*';
  const next = new CronTime(alone.replace('?', text), 'UTC').getNextDateFrom(
    new Date(lastAtMs - SECOND_MS),
    'UTC',
  );
  return next.toMillis() === lastAtMs;
}
