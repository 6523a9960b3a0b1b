import { expect, it } from 'vitest';
import { Elections } from '../../../../lib/election/elections.js';
import { JobRunner } from '../../../../lib/schedule/job-runner.js';
import { createCronPlan } from '../../../../lib/schedule/plan/plan.js';
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
