import { expect, it } from 'vitest';
import { Elections } from '../../../../lib/election/elections.js';
import { JobRunner } from '../../../../lib/schedule/job-runner.js';
import { buildClaimParams } from '../../../../lib/schedule/claim-params.js';
import type { PlannedJob } from '../../../../lib/schedule/job.js';
import { createTick } from '../../../../lib/schedule/plan/tick-calculator.js';
import { OwnTickSearch } from '../../../../lib/schedule/recovery/own-tick-search.js';
import { createCronPlan } from '../../../../lib/schedule/plan/plan.js';
import { Gate } from '../../../support/gate.js';
import { lockFixture } from '../../core/lock-fixture.js';

/** Each of them looks for the dead runs of its ticks when the application starts. */
function startJobs(cronTime: string, count: number) {
  const { clock, backend, ours } = lockFixture();
  const reads = { pending: 0, most: 0, all: 0 };
  const readTicks = backend.readTicks.bind(backend);
  backend.readTicks = async (key) => {
    reads.all += 1;
    reads.pending += 1;
    reads.most = Math.max(reads.most, reads.pending);
    try {
      return await readTicks(key);
    } finally {
      reads.pending -= 1;
    }
  };
  const runner = new JobRunner({ locks: ours, elections: new Elections(ours) });
  for (let number = 1; number <= count; number += 1) {
    const job = {
      ...{ key: `job:${number}`, plan: createCronPlan({ cronTime, timeZone: 'UTC' }) },
      ...{ options: { overlap: 'allow', onDeadRun: 'retry' } as const },
      ...{ schedule: { text: cronTime, timeZone: 'UTC' }, isFiring: () => true, invoke: () => fire() },
      onError: (error: unknown) => expect.unreachable(String(error)),
    };
    const { fire } = runner.guard(job, () => Promise.resolve());
  }
  runner.start();
  return { clock, reads };
}

it('many jobs whose runs may overlap do not flood the store at the start', async () => {
  const { clock, reads } = startJobs('*/5 * * * *', 50);
  await clock.advance(60_000);
  // Each job reads its shared key, all of them at once, and then one job at a time reads its ticks.
  expect(reads.most).toBeLessThan(50 + 10);
});

it('a tick that dies while its job waits for the search of another job is found', async () => {
  const { clock, backend, ours } = lockFixture();
  const plan = createCronPlan({ cronTime: '* * * * *', timeZone: 'UTC' });
  const job: PlannedJob = {
    ...{ key: 'second', plan, options: { overlap: 'allow', onDeadRun: 'retry' } },
    ...{ schedule: { text: '', timeZone: null }, isFiring: () => true, invoke: () => undefined },
    onError: (error) => expect.unreachable(String(error)),
  };
  await clock.advance(60_000);
  const search = new OwnTickSearch(ours);
  const gate = new Gate();
  const readHistory = backend.readHistory.bind(backend);
  backend.readHistory = async (key) => {
    if (key.endsWith('first')) await gate.passed;
    return readHistory(key);
  };
  const first = search.find({ ...job, key: 'first' }, clock.wallMs());
  await clock.advance(0);
  const second = search.find(job, clock.wallMs() - 1);
  const tick = createTick(plan, clock.wallMs());
  await ours.jobs.claimTick(job.key, buildClaimParams(job, tick, ours));
  await clock.advance(2_000);
  gate.open();
  expect(await first).toEqual([]);
  expect(await second).toEqual([tick]);
});
