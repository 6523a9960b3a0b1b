import { expect, it } from '@jest/globals';
import { Elections } from '../../../lib/election/elections.js';
import { JobRunner } from '../../../lib/schedule/job-runner.js';
import type { Job } from '../../../lib/schedule/job.js';
import { createIntervalPlan } from '../../../lib/schedule/plan/plan.js';
import { lockFixture } from '../core/lock-fixture.js';

it.each(['forbid', 'allow'] as const)(
  'a tick that the jitter delays until after a pause does not run (overlap: %s)',
  async (overlap) => {
    const { clock, ours: locks } = lockFixture();
    const ran: Date[] = [];
    const job: Job = {
      ...{ key: 'job', plan: createIntervalPlan(10_000), options: { overlap, jitterMs: 8_000 } },
      ...{ isFiring: () => true, invoke: () => undefined, onError: () => undefined },
    };
    const { fire } = new JobRunner({ locks, elections: new Elections(locks) }).guard(job, ({ tick }) =>
      ran.push(tick),
    );
    await clock.advance(10_000 - (clock.wallMs() % 10_000));
    const firing = fire();
    await locks.jobs.setPaused('job', true);
    await locks.jobs.setPaused('job', false);
    await clock.advance(8_000);
    await firing;
    expect(ran).toEqual([]);
    await clock.advance(10_000 - (clock.wallMs() % 10_000));
    const next = fire();
    await clock.advance(8_000);
    await next;
    expect(ran).toHaveLength(1);
  },
);
