import { describe, expect, it } from 'vitest';
import { CronTime } from 'cron';
import { createCronPlan, createIntervalPlan } from '../../../../lib/schedule/plan/plan.js';
import { ReschedulablePlan } from '../../../../lib/schedule/plan/plan.js';

const at = (iso: string) => Date.parse(iso);
const iso = (ms: number | undefined) => (ms === undefined ? undefined : new Date(ms).toISOString());

describe('the plan of a cron expression', () => {
  it.each([
    ['* * * * * *', '2026-03-01T10:00:00.400Z', '2026-03-01T10:00:00.000Z', '2026-03-01T10:00:01.000Z'],
    ['* * * * * *', '2026-03-01T10:00:01.000Z', '2026-03-01T10:00:01.000Z', '2026-03-01T10:00:02.000Z'],
    ['*/5 * * * *', '2026-03-01T10:07:30.000Z', '2026-03-01T10:05:00.000Z', '2026-03-01T10:10:00.000Z'],
    ['0 3 * * *', '2026-03-01T02:59:59.999Z', '2026-02-28T03:00:00.000Z', '2026-03-01T03:00:00.000Z'],
    ['0 0 1 1 *', '2026-03-01T00:00:00.000Z', '2026-01-01T00:00:00.000Z', '2027-01-01T00:00:00.000Z'],
    ['0 0 29 2 *', '2026-03-01T00:00:00.000Z', '2024-02-29T00:00:00.000Z', '2028-02-29T00:00:00.000Z'],
  ])('%j around %s', (cronTime, now, latest, next) => {
    const plan = createCronPlan({ cronTime, timeZone: 'UTC' });
    expect(iso(plan.latest(at(now)))).toBe(latest);
    expect(iso(plan.next(at(now)))).toBe(next);
  });

  it('follows its time zone', () => {
    const plan = createCronPlan({ cronTime: '0 9 * * *', timeZone: 'America/New_York' });
    expect(iso(plan.next(at('2026-01-10T00:00:00Z')))).toBe('2026-01-10T14:00:00.000Z');
    expect(iso(plan.next(at('2026-07-10T00:00:00Z')))).toBe('2026-07-10T13:00:00.000Z');
  });

  it('follows its UTC offset', () => {
    const plan = createCronPlan({ cronTime: '0 9 * * *', utcOffset: -210 });
    expect(iso(plan.next(at('2026-01-10T00:00:00Z')))).toBe('2026-01-10T12:30:00.000Z');
  });

  it('of a date has one instant', () => {
    const plan = createCronPlan({ cronTime: new Date(at('2026-05-01T12:00:00Z')) });
    expect(iso(plan.next(at('2026-05-01T00:00:00Z')))).toBe('2026-05-01T12:00:00.000Z');
    expect(plan.next(at('2026-05-01T12:00:00Z'))).toBeUndefined();
    expect(iso(plan.latest(at('2026-05-02T00:00:00Z')))).toBe('2026-05-01T12:00:00.000Z');
    expect(plan.latest(at('2026-04-30T00:00:00Z'))).toBeUndefined();
  });

  it.each(['0 0 30 2 *', '0 0 31 4,6,9,11 *'])('has no instant for %j, which never fires', (cronTime) => {
    const never = createCronPlan({ cronTime, timeZone: 'UTC' });
    const given = new ReschedulablePlan({ cronTime: '0 3 * * *' }, 'job').getPlan(new CronTime(cronTime));
    for (const plan of [never, given]) {
      expect(plan.next(at('2026-05-01T12:00:00Z'))).toBeUndefined();
      expect(plan.latest(at('2026-05-01T12:00:00Z'))).toBeUndefined();
    }
  });
});

describe('the plan of an interval', () => {
  it('has whole multiples of the period, the same for every replica', () => {
    const plan = createIntervalPlan(7_000);
    expect(plan.latest(20_999)).toBe(14_000);
    expect(plan.latest(21_000)).toBe(21_000);
    expect(plan.next(20_999)).toBe(21_000);
    expect(plan.next(21_000)).toBe(28_000);
  });

  // As `setInterval` interprets them.
  it.each([[1_000 / 3, 333]])('of %j ms ticks each %j ms', (givenMs, periodMs) => {
    const plan = createIntervalPlan(givenMs);
    expect(plan.next(0)).toBe(periodMs);
    expect(plan.latest(10_000_000)! % periodMs).toBe(0);
    expect(plan.next(10_000_000)! - plan.latest(10_000_000)!).toBe(periodMs);
  });
});
