import { expect, it, vi } from 'vitest';
import { CronTime } from 'cron';
import { CronLocalTimes } from '../../../../lib/schedule/plan/cron-local-times.js';
import { createCronPlan } from '../../../../lib/schedule/plan/plan.js';

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
  '0-58 * * * * *',
  '0-58 * * * *',
  '0 0-22 * * *',
  '0 0 1-30 12 *',
  '0 0 1 1-11 *',
  '0 0 30 JAN-NOV *',
  '0 9 * * 0-5',
  '0 9 * * SUN-FRI',
  '0 9 * * 7,1-5',
  '0 9 * * 1-7',
  '0 9 15 * 0-5',
  '0 9 1-30 * 3',
  '0 9 1-30 2 3',
  '0 9 1-30 * 0-5',
  '0 9 1-30 1-11 0-6',
  '0 9 */1 * 3',
  '  0-58/1  0-22 0-22,5 1-30,30 * 0-5 ',
  ...['@yearly', '@weekly', '@daily', '@hourly', '@minutely', '@secondly', '@weekdays', '@weekends'],
];

/** Over two years, with all fractions of a second. The package finds none more than eight years from now. */
const INSTANTS = Array.from({ length: 20 }, (_, index) => Date.UTC(2024, 0, 1) + index * 3_188_040_123);

it.each(EXPRESSIONS)('%j names the times at which the cron package fires', (expression) => {
  const cronTime = new CronTime(expression);
  const fields = new CronLocalTimes(cronTime);
  const packageNext = (ms: number) => cronTime.getNextDateFrom(new Date(ms), 'UTC').toMillis();
  for (const from of INSTANTS) {
    const found = fields.next(from);
    expect([from, found]).toEqual([from, packageNext(from)]);
    expect(fields.next(found)).toBe(packageNext(found));
    expect(fields.matches(found)).toBe(true);
  }
});

/** The same numbers each time. */
function random(seed: number): (below: number) => number {
  let state = seed;
  return (below) => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return Math.floor((state / 2 ** 32) * below);
  };
}

const LIMITS = [
  { low: 0, high: 59 },
  { low: 0, high: 59 },
  { low: 0, high: 23 },
  { low: 1, high: 31 },
  { low: 1, high: 12, names: 'jan,feb,mar,apr,may,jun,jul,aug,sep,oct,nov,dec' },
  { low: 0, high: 7, names: 'sun,mon,tue,wed,thu,fri,sat' },
];

function fieldText({ low, high, names }: (typeof LIMITS)[number], below: ReturnType<typeof random>): string {
  const value = () => low + below(high - low + 1);
  const [one, other] = [value(), value()].sort((a, b) => a - b);
  const named = (of: number) => names?.split(',')[of - low]?.toUpperCase() ?? of;
  const texts = [
    ...['*', '*', '*', `${low}-${high}`, `${low}-${high - 1}`, `${low}-${high - 1}`, `${low + 1}-${high}`],
    ...[
      `*/${1 + below(high)}`,
      `${one}/${1 + below(9)}`,
      `${one}-${other}/${1 + below(4)}`,
      `${one}-${other}`,
    ],
    ...[
      `${named(one!)}-${named(other!)}`,
      `${named(one!)},${named(other!)},${value()}`,
      `${high - 1},${low}-${high - 2}`,
    ],
    ...[`${high},${low}-${high - 2}`, `${low}-${high - 2}`, `${value()}`],
  ];
  return texts[below(texts.length)]!;
}

it('names the times at which the cron package fires, for any expression', () => {
  const below = random(20_261_123);
  for (let count = 0; count < 150; count += 1) {
    const texts = LIMITS.map((limits) => fieldText(limits, below)).slice(below(2));
    const expression = texts.join(' ');
    if (!CronTime.validateCronExpression(expression).valid) continue;
    const cronTime = new CronTime(expression);
    const fields = new CronLocalTimes(cronTime);
    let packageMs = INSTANTS[count % INSTANTS.length]!;
    let ourMs = packageMs;
    for (let step = 0; step < 6 && ourMs === packageMs; step += 1) {
      const fromMs = ourMs + below(3) * 3_600_000 * below(40);
      packageMs = nextOr(() => cronTime.getNextDateFrom(new Date(fromMs), 'UTC').toMillis());
      ourMs = nextOr(() => fields.next(fromMs));
      if (Number.isNaN(packageMs)) break;
      expect([expression, new Date(ourMs)]).toEqual([expression, new Date(packageMs)]);
    }
  }
});

/** `undefined` for 30 February. */
function nextOr(next: () => number): number {
  try {
    return next();
  } catch {
    return NaN;
  }
}

it('the search for a past tick does not step through time with the cron package', () => {
  const plans = ['0 2 * * *', '30 4 1 1 *'].map((cronTime) =>
    createCronPlan({ cronTime, timeZone: 'Europe/Berlin' }),
  );
  const walk = vi.spyOn(CronTime.prototype, 'getNextDateFrom');
  for (const plan of plans) {
    expect(plan.latest(Date.UTC(2026, 5, 1, 12))).toBeDefined();
    expect(plan.next(Date.UTC(2026, 5, 1, 12))).toBeDefined();
  }
  expect(walk).not.toHaveBeenCalled();
  walk.mockRestore();
});
