import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { tickStoreKey } from '../../../../lib/core/store-key.js';
import type { LockHandle } from '../../../../lib/core/leases/lock-handle.js';
import { createIntervalPlan } from '../../../../lib/schedule/plan/plan.js';
import { DeadRunReporter } from '../../../../lib/schedule/reports/dead-run-reporter.js';
import type { Job } from '../../../../lib/schedule/job.js';
import { lockFixture } from '../../core/lock-fixture.js';

const MINUTE_MS = 60_000;
/** The default lease of a run. */
const LEASE_MS = 30_000;
const CHANNEL = 'nestjs-distributed-lock:run-overdue';

const reported: { readonly remainingMs: number }[] = [];
const note = (message: unknown) => reported.push(message as { remainingMs: number });
beforeEach(() => {
  reported.length = 0;
  subscribe(CHANNEL, note);
});
afterEach(() => void unsubscribe(CHANNEL, note));

const job: Job = {
  ...{ key: 'job', plan: createIntervalPlan(MINUTE_MS), options: {}, isFiring: () => true },
  ...{ schedule: { text: 'test', timeZone: null }, invoke: () => undefined, onError: () => undefined },
};

const KINDS = [
  ['forbid', undefined],
  ['allow', tickStoreKey('lock', 'job', 0)],
] as const;

describe.each(KINDS)('a run with overlap %j that another replica watches', (_overlap, storeKey) => {
  /** A run in progress, which another replica checks each minute, as its ticks are skipped. */
  async function watchedRun() {
    const { clock, backend, ours, theirs } = lockFixture();
    const run = (await ours.jobs.claimTick('job', { leaseMs: undefined, storeKey })) as LockHandle;
    const reporter = new DeadRunReporter(theirs);
    const pass = async (minutes: number) => {
      for (let minute = 0; minute < minutes; minute += 1) {
        if (storeKey === undefined) reporter.checkBlockingRun(job);
        else reporter.checkRunUntilEnd(job, storeKey);
        await clock.advance(MINUTE_MS);
      }
    };
    return { run, pass, backend, clock };
  }

  it('is not reported while it is renewed, also after it has extended its lease', async () => {
    const { run, pass } = await watchedRun();
    await run.extend(10 * MINUTE_MS);
    await pass(30);
    expect(run.isValid()).toBe(true);
    expect(reported).toEqual([]);
  });

  it('is not reported if it extends its lease again and again', async () => {
    const { run, pass } = await watchedRun();
    for (let round = 0; round < 6; round += 1) {
      await run.extend(10 * MINUTE_MS);
      await pass(7);
    }
    expect(run.isValid()).toBe(true);
    expect(reported).toEqual([]);
  });

  it('is not reported if a renewal failed when the extended lease was about to end', async () => {
    const { run, pass, backend, clock } = await watchedRun();
    const { key, holder } = run.grant.request;
    const renew = () => backend.execute({ renew: [{ key, holder, leaseMs: LEASE_MS }] });
    await run.extend(2 * MINUTE_MS);
    run.stopRenewing();
    // The first renewal that changes anything is late, and so is the one after it.
    clock.after(2 * MINUTE_MS - LEASE_MS + 1_000, () => void renew());
    clock.after(2 * MINUTE_MS - LEASE_MS / 2 + 500, () => void renew());
    await pass(2);
    expect(reported).toEqual([]);
  });

  it('is reported before its extended lease has ended, if it died', async () => {
    const { run, pass } = await watchedRun();
    await run.extend(10 * MINUTE_MS);
    run.stopRenewing();
    await pass(9);
    expect(reported).toEqual([]);
    await pass(1);
    expect(reported).toHaveLength(1);
    expect(reported[0]!.remainingMs).toBeGreaterThan(8_000);
  });

  it('is reported before its lease has ended, if it died without that', async () => {
    const { run, pass } = await watchedRun();
    run.stopRenewing();
    await pass(1);
    expect(reported).toHaveLength(1);
    expect(reported[0]!.remainingMs).toBeGreaterThan(8_000);
  });
});
