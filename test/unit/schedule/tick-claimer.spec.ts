import { Logger } from '@nestjs/common';
import { expect, it, onTestFinished, vi } from 'vitest';
import { LockHandle } from '../../../lib/core/leases/lock-handle.js';
import type { Locks } from '../../../lib/core/locks.js';
import { LockUnavailableError } from '../../../lib/core/errors.js';
import { Elections } from '../../../lib/election/elections.js';
import { CronRuns } from '../../../lib/schedule/cron-runs.js';
import { JobRunner } from '../../../lib/schedule/job-runner.js';
import type { Job } from '../../../lib/schedule/job.js';
import { buildClaimParams } from '../../../lib/schedule/claim-params.js';
import { createIntervalPlan } from '../../../lib/schedule/plan/plan.js';
import { TickClaimer } from '../../../lib/schedule/tick-claimer.js';
import { Gate } from '../../support/gate.js';
import { lockFixture } from '../core/lock-fixture.js';

it.each(['forbid', 'allow'] as const)(
  'a tick that the jitter delays until after a pause does not run (overlap: %s)',
  async (overlap) => {
    const { clock, ours: locks } = lockFixture();
    const ran: Date[] = [];
    const job: Job = {
      ...{ key: 'job', plan: createIntervalPlan(10_000), options: { overlap, jitterMs: 8_000 } },
      ...{
        isFiring: () => true,
        schedule: { text: 'test', timeZone: null },
        invoke: () => undefined,
        onError: () => undefined,
      },
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

const PERIOD_MS = 10_000;

const jobWith = (options: Job['options'], plan: Job['plan'] = createIntervalPlan(PERIOD_MS)): Job => ({
  ...{ key: 'job', plan, options },
  ...{
    isFiring: () => true,
    schedule: { text: 'test', timeZone: null },
    invoke: () => undefined,
    onError: () => undefined,
  },
});

const claimerOf = (locks: Locks) => new TickClaimer(locks, new Elections(locks));

async function pauseAndResume({ jobs }: Locks): Promise<void> {
  await jobs.setPaused('job', true);
  await jobs.setPaused('job', false);
}

it('a new deployment runs after a pause has ended', async () => {
  const { ours: locks } = lockFixture();
  const ran: Date[] = [];
  await pauseAndResume(locks);
  const job: Job = { ...jobWith({ deployKey: 'v2' }), plan: undefined };
  const { fire } = new JobRunner({ locks, elections: new Elections(locks) }).guard(job, ({ tick }) =>
    ran.push(tick),
  );
  await fire();
  await fire();
  expect(ran).toHaveLength(1);
});

it('a second pause is logged, too, if the job ran in between', async () => {
  const { clock, ours: locks } = lockFixture();
  const log = vi.spyOn(Logger.prototype, 'log').mockReturnValue();
  onTestFinished(() => log.mockRestore());
  const claimer = claimerOf(locks);
  const claim = async () => {
    await clock.advance(PERIOD_MS - (clock.wallMs() % PERIOD_MS));
    return claimer.claimWhenDue(job, { tickMs: clock.wallMs(), periodMs: PERIOD_MS });
  };
  const job = jobWith({});
  for (let pause = 0; pause < 2; pause += 1) {
    await locks.jobs.setPaused('job', true);
    expect(await claim()).toMatchObject({ reason: 'paused' });
    await locks.jobs.setPaused('job', false);
    await ((await claim()) as LockHandle).release();
  }
  expect(log.mock.calls.filter(([text]) => String(text).includes('is paused'))).toHaveLength(2);
});

it('a run that was in progress during a pause is retried when it dies (overlap: allow)', async () => {
  const { clock, ours, theirs } = lockFixture();
  const job = jobWith({ overlap: 'allow', onDeadRun: 'retry', leaseMs: 1_000 });
  await clock.advance(PERIOD_MS - (clock.wallMs() % PERIOD_MS));
  const [tick, another] = [0, PERIOD_MS].map((agoMs) => ({
    tickMs: clock.wallMs() - agoMs,
    periodMs: PERIOD_MS,
  }));
  const handle = await ours.jobs.claimTick('job', buildClaimParams(job, tick!, ours));
  expect(handle).toBeInstanceOf(LockHandle);
  await pauseAndResume(theirs);
  (handle as LockHandle).stopRenewing();
  await clock.advance(1_500);
  const retried = await claimerOf(theirs).claimNow(job, tick!);
  expect(retried instanceof LockHandle && retried.grant.attempt).toBe(2);
  // It has no run yet, and was due before the end of the pause.
  expect(await claimerOf(theirs).claimNow(job, another!)).toMatchObject({ reason: 'claimed' });
});

it('a tick of a job that was never paused is not skipped as paused (overlap: allow after forbid)', async () => {
  const { clock, ours, theirs } = lockFixture();
  const tick = { tickMs: clock.wallMs(), periodMs: PERIOD_MS };
  const run = await ours.jobs.claimTick('job', buildClaimParams(jobWith({}), tick, ours));
  (run as LockHandle).endRun();
  await (run as LockHandle).release();
  const claimed = await claimerOf(theirs).claimWhenDue(jobWith({ overlap: 'allow' }), tick);
  expect(claimed).toMatchObject({ kind: 'refused', reason: 'claimed' });
});

it('history() rejects when the store does not say whether the job is paused', async () => {
  const { backend, ours: locks } = lockFixture();
  const runner = new JobRunner({ locks, elections: new Elections(locks) });
  await locks.jobs.setPaused('job', true);
  backend.next('readTicks', { refuse: true });
  await expect(new CronRuns({ runner, locks }).history('job')).rejects.toThrow(LockUnavailableError);
  expect(await new CronRuns({ runner, locks }).history('job')).toMatchObject({ isPaused: true });
});

it('claims nothing if the application begins to drain while the store is asked for a pause (overlap: allow)', async () => {
  const { backend, clock, ours: locks } = lockFixture();
  const state = await backend.readTicks('lock/job:job');
  const slow = new Gate();
  vi.spyOn(backend, 'readTicks').mockImplementationOnce(async () => {
    await slow.passed;
    return state;
  });
  const tick = { tickMs: clock.wallMs(), periodMs: PERIOD_MS };
  const claiming = claimerOf(locks).claimWhenDue(jobWith({ overlap: 'allow' }), tick);
  await clock.advance(10);
  await locks.drain({ drainMs: 0, abortGraceMs: 0 });
  slow.open();
  expect(await claiming).toBe('shutdown');
  expect(backend.count('acquire')).toBe(0);
});
