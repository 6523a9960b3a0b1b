import { expect, it, jest } from '@jest/globals';
import { CronTime } from 'cron';
import { CronFields } from '../../../lib/schedule/cron-fields.js';
import { cronPlan } from '../../../lib/schedule/plan.js';

const EXPRESSIONS = [
  '* * * * * *',
  '*/7 5,3 * * * *',
  '59 59 23 31 12 *',
  '0 0 31 * *',
  '0 0 29 2 *',
  '0 0 13 * 5',
  '0 0 * * 1-5',
  '0 0 1-31 * 5',
  '0 0 13 * 0-6',
  '30 4 1,15 */2 7',
  '@monthly',
  '0 9 * jan-mar mon',
];

/** Over two years, with all fractions of a second. The package finds none more than eight years from now. */
const INSTANTS = Array.from({ length: 20 }, (_, index) => Date.UTC(2024, 0, 1) + index * 3_188_040_123);

it.each(EXPRESSIONS)('%p names the times that the cron package says', (expression) => {
  const cronTime = new CronTime(expression);
  const fields = new CronFields(cronTime);
  const packageNext = (ms: number) => cronTime.getNextDateFrom(new Date(ms), 'UTC').toMillis();
  for (const from of INSTANTS) {
    const found = fields.next(from);
    expect([from, found]).toEqual([from, packageNext(from)]);
    expect(fields.next(found)).toBe(packageNext(found));
    expect(fields.isNamed(found)).toBe(true);
  }
});

it('looking back for a tick does not walk through time with the cron package', () => {
  const plans = ['0 2 * * *', '30 4 1 1 *'].map((cronTime) =>
    cronPlan({ cronTime, timeZone: 'Europe/Berlin' }),
  );
  const walk = jest.spyOn(CronTime.prototype, 'getNextDateFrom');
  for (const plan of plans) {
    expect(plan.latest(Date.UTC(2026, 5, 1, 12))).toBeDefined();
    expect(plan.next(Date.UTC(2026, 5, 1, 12))).toBeDefined();
  }
  expect(walk).not.toHaveBeenCalled();
  walk.mockRestore();
});
