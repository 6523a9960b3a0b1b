import { describe, expect, it } from '@jest/globals';
import { Elections } from '../../../lib/election/elections.js';
import { JobRunner } from '../../../lib/schedule/job-runner.js';
import type { Job, JobOptions } from '../../../lib/schedule/job.js';
import { createCronPlan } from '../../../lib/schedule/plan/plan.js';
import { createTick } from '../../../lib/schedule/plan/tick-calculator.js';
import { buildClaimParams } from '../../../lib/schedule/claim-params.js';
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
  ])('for at least as long as it may be claimed %s', (_, options, claimableMs) => {
    const { ours } = lockFixture();
    const weekly = job('0 3 * * 1', { ...options, overlap: 'allow' });
    const tick = createTick(weekly.plan!, MONDAY_MS);
    for (const isMissed of [false, true]) {
      const { cleanUp: forget } = buildClaimParams(weekly, tick, ours, { isMissed }).tick;
      expect(forget?.afterMs).toBeGreaterThan(claimableMs);
    }
  });
});

describe('a jitter that may be longer than a tick can be claimed', () => {
  const register = (cronTime: string, options: JobOptions) => {
    const { ours } = lockFixture();
    const given = job(cronTime, options);
    return new JobRunner({ locks: ours, elections: new Elections(ours) }).guard(given, () => undefined);
  };

  it('is refused, also if staleAfterMs is not set', () => {
    expect(() => register('0 3 1 * *', { jitterMs: 2 * DAY_MS })).toThrow(
      /jitterMs to be less than staleAfterMs, which is 86400000 by default/,
    );
  });

  it('is accepted with a longer staleAfterMs, and if the period limits it', () => {
    register('0 3 1 * *', { jitterMs: 2 * DAY_MS, staleAfterMs: 3 * DAY_MS });
    register('0 3 * * *', { jitterMs: 2 * DAY_MS });
    expect(register('0 3 1 * *', { jitterMs: DAY_MS - 1 })).toBeDefined();
  });
});
