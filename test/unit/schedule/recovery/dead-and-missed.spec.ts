import { describe, expect, it } from 'vitest';
import type { Lease } from '../../../../lib/core/leases/lease.js';
import { Elections } from '../../../../lib/election/elections.js';
import { buildClaimParams } from '../../../../lib/schedule/claim-params.js';
import { JobRunner } from '../../../../lib/schedule/job-runner.js';
import type { Job, JobOptions } from '../../../../lib/schedule/job.js';
import { createCronPlan } from '../../../../lib/schedule/plan/plan.js';
import { createTick } from '../../../../lib/schedule/plan/tick-calculator.js';
import { lockFixture } from '../../core/lock-fixture.js';

const HOUR_MS = 60 * 60 * 1_000;
const DAY_MS = 24 * HOUR_MS;
/** A Thursday: the time at which the clock of {@link lockFixture} begins. */
const BEGIN_MS = Date.UTC(2026, 0, 1);

interface Outage {
  readonly cronTime: string;
  readonly options: JobOptions;
  /** The tick whose run dies, together with all replicas. */
  readonly deadAtMs: number;
  /** When a replica is back. */
  readonly backAtMs: number;
}

/** Returns what a replica runs in the five minutes after the outage, and how often it asks the store about ticks. */
async function runAfter({ cronTime, options, deadAtMs, backAtMs }: Outage) {
  const { clock, backend, ours, theirs } = lockFixture();
  const runs: string[] = [];
  const job: Job = {
    ...{ key: 'job', plan: createCronPlan({ cronTime, timeZone: 'UTC' }), options, isFiring: () => true },
    ...{ schedule: { text: cronTime, timeZone: 'UTC' }, invoke: () => fire() },
    onError: (error) => runs.push(String(error)),
  };
  await clock.advance(deadAtMs - BEGIN_MS);
  const run = (await ours.jobs.claimTick(
    'job',
    buildClaimParams(job, createTick(job.plan!, deadAtMs), ours),
  )) as Lease;
  run.letLapse();
  await clock.advance(backAtMs - deadAtMs);
  let requestCount = 0;
  for (const name of ['registerTicks', 'readTicks'] as const) {
    const send = backend[name].bind(backend);
    backend[name] = (key: string) => {
      requestCount += 1;
      return send(key);
    };
  }
  const runner = new JobRunner({ locks: theirs, elections: new Elections(theirs) });
  const { fire } = runner.guard(job, ({ tick, attempt }) => {
    runs.push(`${tick.toISOString().slice(5, 16)} #${attempt}`);
  });
  runner.start();
  await clock.advance(5 * 60_000);
  await ours.close();
  await theirs.close();
  return { runs, requestCount };
}

const at = (day: number, hour: number) => Date.UTC(2026, 0, day, hour);
const OFFICE_HOURS = '0 9-17 * * 1-5';
const both = { onMissed: 'once', onDeadRun: 'retry' } as const;

describe('after an outage in which a run died and a later tick was missed', () => {
  it('the missed tick runs if the run died too long ago, however old a missed tick may be', async () => {
    const outage = { cronTime: '0 3 * * *', deadAtMs: at(2, 3), backAtMs: at(4, 12) };
    const options = { ...both, missedWithinMs: 3 * DAY_MS };
    expect((await runAfter({ ...outage, options })).runs).toEqual(['01-04T03:00 #1']);
  });

  it('the missed tick runs if the run died too long ago for its own period, and the store is asked a few times', async () => {
    const outage = { cronTime: OFFICE_HOURS, deadAtMs: at(7, 16), backAtMs: at(8, 8), options: both };
    const { runs, requestCount } = await runAfter(outage);
    expect(runs).toEqual(['01-07T17:00 #1']);
    expect(requestCount).toBeLessThan(10);
  });

  it('the dead run is retried before the missed tick runs, if it may be', async () => {
    const outage = { cronTime: OFFICE_HOURS, deadAtMs: at(7, 16), backAtMs: at(8, 1), options: both };
    expect((await runAfter(outage)).runs).toEqual(['01-07T16:00 #2', '01-07T17:00 #1']);
  });

  it('the dead run is retried for as long as its own period says, though a later tick has a shorter one', async () => {
    const options = { onDeadRun: 'retry' } as const;
    const outage = { cronTime: OFFICE_HOURS, deadAtMs: at(7, 17), backAtMs: at(8, 9) + HOUR_MS / 2, options };
    expect((await runAfter(outage)).runs).toEqual(['01-07T17:00 #2']);
  });
});
