import { expect, it } from 'vitest';
import { MemoryBackend } from '../../../lib/backends/memory/memory-backend.js';
import { Elections } from '../../../lib/election/elections.js';
import { CronRuns } from '../../../lib/schedule/cron-runs.js';
import { JobRunner } from '../../../lib/schedule/job-runner.js';
import { SettableClock } from '../../../lib/testing/settable-clock.js';
import { locksOn } from '../core/lock-fixture.js';

/** A process on a store that keeps leases for up to 10 s, so that elections need a shorter lease than theirs. */
function setUp() {
  const clock = new SettableClock();
  const locks = locksOn(Object.assign(new MemoryBackend({ clock }), { maxLeaseMs: 10_000 }));
  const elections = new Elections(locks);
  const runner = new JobRunner({ locks, elections });
  const cronRuns = new CronRuns({ runner, locks });
  const ran: string[] = [];
  const guard = (name: string, options: { leader?: string } = {}) =>
    cronRuns.guard('import', { everyMs: 1_000, leaseMs: 5_000, ...options }, () => ran.push(name));
  runner.start();
  elections.start();
  return { clock, cronRuns, elections, guard, ran };
}

const REFUSED = { leader: 'boss' };

it('a guard that throws leaves the earlier guard of its key as it was', async () => {
  const { clock, cronRuns, guard, ran } = setUp();
  const onTick = guard('before');
  await onTick();
  expect(() => guard('after', REFUSED)).toThrow(/leaseMs of election 'boss'/);
  await clock.advance(1_000);
  await onTick();
  expect(ran).toEqual(['before', 'before']);
  expect(await cronRuns.jobs()).toMatchObject([{ key: 'import', isFiring: true }]);
});

it('a guard that throws adds no job', async () => {
  const { cronRuns, guard } = setUp();
  expect(() => guard('job', REFUSED)).toThrow(/leaseMs of election 'boss'/);
  expect(await cronRuns.jobs()).toEqual([]);
});

it('a guard that throws leaves no handler in its election', async () => {
  const { clock, elections, guard, ran } = setUp();
  const handler = { location: 'import', run: () => ran.push('job') };
  expect(() => guard('job', REFUSED)).toThrow();
  expect(() => elections.joinForJob('boss', handler)).toThrow();
  elections.join('boss', { leaseMs: 5_000 });
  await clock.advance(0);
  expect(elections.currentTerm('boss')).toBeDefined();
  expect(ran).toEqual([]);
});
