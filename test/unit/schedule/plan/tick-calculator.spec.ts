import { describe, expect, it } from 'vitest';
import fc from 'fast-check';
import { createCronPlan, createIntervalPlan } from '../../../../lib/schedule/plan/plan.js';
import { TickCalculator } from '../../../../lib/schedule/plan/tick-calculator.js';

const START = Date.parse('2026-03-01T10:00:00.500Z');
const BEGIN = Date.parse('2026-03-01T10:00:00.000Z');

const eachSecond = () =>
  new TickCalculator({ plan: createCronPlan({ cronTime: '* * * * * *', timeZone: 'UTC' }) }, START);
/** The tick of each firing, in ms since 10:00. */
const ticks = (tracker: TickCalculator, ...firedAtMs: number[]) =>
  firedAtMs.map((ms) => (tracker.calculateTick(BEGIN + ms)?.tickMs ?? NaN) - BEGIN);

describe('the tick a timer fired for', () => {
  it('is the planned instant, if it fires on time', () => {
    expect(ticks(eachSecond(), 1_000, 2_003, 3_001)).toEqual([1_000, 2_000, 3_000]);
  });

  it('is the planned instant, if it fires a little early', () => {
    expect(ticks(eachSecond(), 999, 1_998, 3_000)).toEqual([1_000, 2_000, 3_000]);
  });

  it('is the planned instant, if it fires late', () => {
    expect(ticks(eachSecond(), 1_950, 2_999, 3_500)).toEqual([1_000, 2_000, 3_000]);
  });

  it('is the newest instant, if the process slept past others', () => {
    expect(ticks(eachSecond(), 1_000, 5_400, 6_000)).toEqual([1_000, 5_000, 6_000]);
  });

  it('is an earlier instant again, if the clock was set back', () => {
    expect(ticks(eachSecond(), 9_000, 10_000, 3_001, 4_001)).toEqual([9_000, 10_000, 3_000, 4_000]);
  });

  it('is the newest instant, if the method was called without its timer in between', () => {
    expect(ticks(eachSecond(), 1_000, 1_300, 2_001)).toEqual([1_000, 1_000, 2_000]);
  });

  it.each([
    ['one instant has passed', '11:59:59.700'],
    ['several instants have passed', '13:59:59.700'],
  ])('is the next instant, if it fires a little early and %s without a timer', (_, time) => {
    const hourly = new TickCalculator(
      { plan: createCronPlan({ cronTime: '0 * * * *', timeZone: 'UTC' }) },
      START,
    );
    const firedAtMs = Date.parse(`2026-03-01T${time}Z`);
    expect(hourly.calculateTick(firedAtMs)?.tickMs).toBe(firedAtMs + 300);
  });

  it('is the next instant, if it fires a little early after the clock was set back', () => {
    const hourly = new TickCalculator(
      { plan: createCronPlan({ cronTime: '0 * * * *', timeZone: 'UTC' }) },
      START,
    );
    const firedAtMs = Date.parse('2026-03-01T08:59:59.700Z');
    expect(hourly.calculateTick(firedAtMs)?.tickMs).toBe(firedAtMs + 300);
  });

  it('is the instant before, if that is not long ago', () => {
    expect(ticks(eachSecond(), 1_000, 4_999)).toEqual([1_000, 4_000]);
  });

  it('has the time until the next one', () => {
    const daily = new TickCalculator(
      { plan: createCronPlan({ cronTime: '0 3 * * *', timeZone: 'UTC' }) },
      START,
    );
    expect(daily.calculateTick(Date.parse('2026-03-02T03:00:00.010Z'))).toEqual({
      tickMs: Date.parse('2026-03-02T03:00:00Z'),
      periodMs: 24 * 60 * 60 * 1_000,
    });
  });

  it('does not exist for a date in the future', () => {
    const once = new TickCalculator(
      { plan: createCronPlan({ cronTime: new Date('2030-01-01T00:00:00Z') }) },
      START,
    );
    expect(once.calculateTick(START)).toBeUndefined();
  });

  it('of an interval is a new one for each firing, at any phase and with any jitter', () => {
    const period = 1_000;
    const phase = fc.integer({ min: 0, max: period - 1 });
    const jitters = fc.array(fc.integer({ min: -100, max: 200 }), { minLength: 5, maxLength: 60 });
    fc.assert(
      fc.property(phase, jitters, (phaseMs, jitterMs) => {
        const tracker = new TickCalculator({ plan: createIntervalPlan(period) }, BEGIN + phaseMs);
        const found = jitterMs.map(
          (jitter, turn) => tracker.calculateTick(BEGIN + phaseMs + (turn + 1) * period + jitter)!.tickMs,
        );
        expect(new Set(found).size).toBe(found.length);
        expect(found.every((tick) => (tick - BEGIN) % period === 0)).toBe(true);
      }),
    );
  });
});
