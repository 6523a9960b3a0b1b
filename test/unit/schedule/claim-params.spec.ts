import { describe, expect, it } from 'vitest';
import { Elections } from '../../../lib/election/elections.js';
import { JobRunner } from '../../../lib/schedule/job-runner.js';
import type { Job, JobOptions } from '../../../lib/schedule/job.js';
import { createCronPlan, createIntervalPlan } from '../../../lib/schedule/plan/plan.js';
import { createTick } from '../../../lib/schedule/plan/tick-calculator.js';
import { buildClaimParams } from '../../../lib/schedule/claim-params.js';
import { listNewestTicks } from '../../../lib/schedule/plan/newest-ticks.js';
import { lockFixture } from '../core/lock-fixture.js';

const HOUR_MS = 60 * 60 * 1_000;
const DAY_MS = 24 * HOUR_MS;
const MONDAY_MS = Date.UTC(2026, 0, 5, 3);

const job = (cronTime: string, options: JobOptions): Job => ({
  ...{ key: 'job', plan: createCronPlan({ cronTime, timeZone: 'UTC' }), options, isFiring: () => true },
  ...{ schedule: { text: 'test', timeZone: null }, invoke: () => undefined, onError: () => undefined },
});

describe('a tick that may overlap with others is kept in the store', () => {
  it.each<[string, JobOptions, number]>([
    ['as a missed one, a period', { onMissed: 'once' }, 7 * DAY_MS],
    ['as a missed one, missedWithinMs', { onMissed: 'once', missedWithinMs: 9 * DAY_MS }, 9 * DAY_MS],
    ['late', { staleAfterMs: 8 * DAY_MS, onMissed: 'once' }, 8 * DAY_MS],
    ['late, without onMissed', {}, DAY_MS],
    ['as a missed one by a later deployment', {}, 7 * DAY_MS],
  ])('for at least as long as it may be claimed %s', (_, options, claimableMs) => {
    const { ours } = lockFixture();
    const weekly = job('0 3 * * 1', { ...options, overlap: 'allow' });
    const tick = createTick(weekly.plan!, MONDAY_MS);
    for (const claimed of [undefined, tick]) {
      const { cleanUp: forget } = buildClaimParams(weekly, tick, ours, claimed).tick;
      expect(forget?.afterMs).toBeGreaterThan(claimableMs);
    }
  });
});

describe('the clean-up of ticks that may overlap', () => {
  const MINUTE_MS = 60_000;

  it.each(['* * * * *', '0,1 * * * *', '0-49 * * * *', '*/5 9-17 * * *', '*/5 9-17 * * 1-5', '0 3 * * 1'])(
    'keeps the ticks of %s that may still be claimed',
    (cronTime) => {
      const { ours } = lockFixture();
      const given = job(cronTime, { overlap: 'allow' });
      const plan = given.plan!;
      const ticks: number[] = [];
      for (let atMs = MONDAY_MS; atMs < MONDAY_MS + 2 * DAY_MS; atMs = plan.next(atMs)!) ticks.push(atMs);
      for (const newMs of ticks.slice(-40)) {
        const { fromKey, beforeKey } = buildClaimParams(given, createTick(plan, newMs), ours).tick.cleanUp!;
        const removed = ticks.filter((tickMs) => {
          const { storeKey } = buildClaimParams(given, createTick(plan, tickMs), ours);
          return storeKey! >= fromKey && storeKey! < beforeKey;
        });
        const claimable = removed.filter((tickMs) => {
          const { staleAfterMs } = buildClaimParams(given, createTick(plan, tickMs), ours).tick;
          return tickMs + staleAfterMs >= newMs;
        });
        expect(claimable).toEqual([]);
      }
    },
  );

  it('of a regular schedule keeps no tick for much longer than it may be claimed', () => {
    const { ours } = lockFixture();
    const given = job('* * * * *', { overlap: 'allow' });
    const { cleanUp, staleAfterMs } = buildClaimParams(given, createTick(given.plan!, MONDAY_MS), ours).tick;
    expect(cleanUp!.afterMs).toBeLessThan(staleAfterMs + MINUTE_MS);
  });
});

const register = (given: Job) => {
  const { ours } = lockFixture();
  return new JobRunner({ locks: ours, elections: new Elections(ours) }).guard(given, () => undefined);
};

describe('an interval, which fires at any time of its period,', () => {
  const interval = (everyMs: number, options: JobOptions): Job => ({
    ...job('* * * * *', options),
    plan: createIntervalPlan(everyMs),
  });

  it('is refused if all its ticks could be stale', () => {
    expect(() => register(interval(4_000, { staleAfterMs: 6_000 }))).toThrow(
      /staleAfterMs to be more than 6000, which is 1.5 intervals and the jitter, got 6000/,
    );
    expect(() => register(interval(4_000, { staleAfterMs: 7_000, jitterMs: 1_000 }))).toThrow(
      /more than 7000/,
    );
    expect(register(interval(4_000, { staleAfterMs: 6_001 }))).toBeDefined();
  });

  it('has a default for staleAfterMs that is long enough', () => {
    const { ours } = lockFixture();
    const weekly = interval(7 * DAY_MS, { jitterMs: DAY_MS });
    expect(register(weekly)).toBeDefined();
    const tick = createTick(weekly.plan!, weekly.plan!.latest(MONDAY_MS)!);
    const { staleAfterMs } = buildClaimParams(weekly, tick, ours).tick;
    expect(staleAfterMs).toBeGreaterThan(11.5 * DAY_MS);
  });
});

describe('a jitter that may be longer than a tick can be claimed', () => {
  it('is refused, also if staleAfterMs is not set', () => {
    expect(() => register(job('0 3 1 * *', { jitterMs: 2 * DAY_MS }))).toThrow(
      /jitterMs to be less than staleAfterMs, which is 86400000 by default/,
    );
  });

  it('is accepted with a longer staleAfterMs, and if the period limits it', () => {
    register(job('0 3 1 * *', { jitterMs: 2 * DAY_MS, staleAfterMs: 3 * DAY_MS }));
    register(job('0 3 * * *', { jitterMs: 2 * DAY_MS }));
    expect(register(job('0 3 1 * *', { jitterMs: DAY_MS - 1 }))).toBeDefined();
  });
});

describe.each(['*/5 * * * *', '0 9-17 * * 1-5', '30 2 * * *', '15,45 1 1 * *'])(
  'the newest ticks of %s',
  (cronTime) => {
    it.each(['Europe/Berlin', 'America/New_York', 'Australia/Lord_Howe'])(
      'are those before each other in %s',
      (timeZone) => {
        const plan = createCronPlan({ cronTime, timeZone });
        for (const nowMs of [Date.UTC(2026, 2, 29, 3), Date.UTC(2026, 9, 25, 3), Date.UTC(2026, 10, 1, 8)]) {
          const ticks = listNewestTicks(plan, nowMs);
          expect(ticks).toHaveLength(100);
          for (const [index, { tickMs }] of ticks.entries()) {
            const afterMs = ticks[index + 1]?.tickMs;
            expect(tickMs).toBe(plan.latest(afterMs === undefined ? nowMs : afterMs - 1));
          }
        }
      },
    );
  },
);
