import { CronTime } from 'cron';

/** The first instant later than this one at which the expression is due, as the tables have it. */
export const tickAfter = (expression: string, instant: Date): string =>
  new CronTime(expression, 'UTC').getNextDateFrom(instant, 'UTC').toJSDate().toISOString();
