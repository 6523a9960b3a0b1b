import { describe, expect, it } from 'vitest';
import type { LockHandle } from '../../../../lib/core/leases/lock-handle.js';
import { Elections } from '../../../../lib/election/elections.js';
import { buildClaimParams } from '../../../../lib/schedule/claim-params.js';
import { JobRunner } from '../../../../lib/schedule/job-runner.js';
import type { CronRun, Job, JobOptions } from '../../../../lib/schedule/job.js';
import { createCronPlan } from '../../../../lib/schedule/plan/plan.js';
import { createTick } from '../../../../lib/schedule/plan/tick-calculator.js';
import { sleep } from '../../../../lib/core/clock.js';
import { encodeRecord } from '../../../../lib/schedule/run-record.js';
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
  /** How long a run of the replica takes. */
  readonly bodyMs?: number;
  /** The schedule of the replica, if it is another one. */
  readonly newCronTime?: string;
  /** When another replica is back, after the first one has left. */
  readonly backAgainAtMs?: number;
  /** Whether the run has ended instead. */
  readonly hasEnded?: boolean;
  /** Whether the run is interrupted by the shutdown instead. */
  readonly isInterrupted?: boolean;
  /** Whether the first request for the history gets no answer. */
  readonly losesHistory?: boolean;
  /** Whether the reply to the first claim of the replica is lost. */
  readonly losesClaim?: boolean;
  /** Whether another process takes the lock of the job for a minute, after the replica has read that it is free. */
  readonly isTakenMeanwhile?: boolean;
  /** For how long the store answers no question about ticks once the replica is back. */
  readonly silentForMs?: number;
}

/** Returns what a replica runs in the five minutes after the outage, and how often it asks the store about ticks. */
async function runAfter({ cronTime, options, deadAtMs, backAtMs, bodyMs = 0, ...more }: Outage) {
  const {
    newCronTime = cronTime,
    hasEnded = false,
    isInterrupted = false,
    losesHistory = false,
    silentForMs = 0,
    losesClaim = false,
    isTakenMeanwhile = false,
    backAgainAtMs,
  } = more;
  const { clock, backend, ours, theirs, another } = lockFixture();
  const runs: string[] = [];
  const plan = createCronPlan({ cronTime, timeZone: 'UTC' });
  const job: Job = {
    ...{ key: 'job', plan: createCronPlan({ cronTime: newCronTime, timeZone: 'UTC' }), options },
    ...{ schedule: { text: newCronTime, timeZone: 'UTC' }, isFiring: () => true, invoke: () => fire() },
    onError: (error) => runs.push(String(error)),
  };
  const oldJob = { ...job, plan };
  const old = new JobRunner({ locks: ours, elections: new Elections(ours) }).guard(oldJob, () =>
    Promise.resolve(),
  );
  await clock.advance(deadAtMs - BEGIN_MS);
  if (hasEnded) await old.fire();
  else {
    const claim = buildClaimParams(oldJob, createTick(plan, deadAtMs), ours);
    const run = (await ours.jobs.claimTick('job', claim)) as LockHandle;
    const started = new Date(deadAtMs);
    await ours.jobs.appendHistory(
      'job',
      encodeRecord(
        {
          ...{ tick: started, attempt: 1, isManual: false, instance: 'ours', started },
          ...{ fencingToken: run.fencingToken, error: null },
          ...(isInterrupted
            ? { ended: started, outcome: 'interrupted' }
            : { ended: null, outcome: 'running' }),
        },
        undefined,
      ),
    );
    run.stopRenewing();
  }
  await clock.advance(backAtMs - deadAtMs);
  let requestCount = 0;
  let isFree = isTakenMeanwhile;
  const byHand = { key: 'lock/job:job', holder: 'by hand', leaseMs: 60_000, instance: 'another' };
  for (const name of ['registerTicks', 'readTicks'] as const) {
    const send = backend[name].bind(backend);
    backend[name] = (key: string) => {
      requestCount += 1;
      if (isFree && name === 'readTicks') {
        isFree = false;
        void backend.execute({ acquire: [byHand] });
      }
      if (clock.wallMs() < backAtMs + silentForMs) return Promise.reject(new Error('connection reset'));
      return send(key);
    };
  }
  const readHistory = backend.readHistory.bind(backend);
  let isLost = losesHistory;
  backend.readHistory = (key) => {
    if (!isLost) return readHistory(key);
    isLost = false;
    return Promise.reject(new Error('connection reset'));
  };
  const runner = new JobRunner({ locks: theirs, elections: new Elections(theirs) });
  const record = async ({ tick, attempt, signal }: CronRun) => {
    runs.push(`${tick.toISOString().slice(5, 16)} #${attempt}`);
    if (bodyMs > 0) await sleep(clock, bodyMs, signal);
  };
  let { fire } = runner.guard(job, record);
  if (losesClaim) backend.next('acquire', { silence: true });
  runner.start();
  await clock.advance(5 * 60_000);
  await ours.close();
  await theirs.close();
  if (backAgainAtMs !== undefined) {
    await clock.advance(backAgainAtMs - clock.wallMs());
    const last = another();
    const lastRunner = new JobRunner({ locks: last, elections: new Elections(last) });
    ({ fire } = lastRunner.guard(job, record));
    lastRunner.start();
    await clock.advance(5 * 60_000);
    await last.close();
  }
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

  it('the missed tick runs after the retry of the dead run, however long that takes', async () => {
    const outage = { cronTime: OFFICE_HOURS, deadAtMs: at(7, 16), backAtMs: at(8, 1), options: both };
    const expected = ['01-07T16:00 #2', '01-07T17:00 #1'];
    for (const bodyMs of [2_000, 60_000])
      expect((await runAfter({ ...outage, bodyMs })).runs).toEqual(expected);
  });

  it('the missed tick runs when the lease of a dead run that is not retried has ended', async () => {
    const outage = { cronTime: '0 * * * *', deadAtMs: at(7, 9), backAtMs: at(7, 10) };
    const options = { onMissed: 'once', leaseMs: HOUR_MS + 60_000, staleAfterMs: 2 * HOUR_MS } as const;
    expect((await runAfter({ ...outage, options })).runs).toEqual(['01-07T10:00 #1']);
  });

  it('the missed tick runs after a lock that was taken just before its claim', async () => {
    const outage = { cronTime: '0 * * * *', deadAtMs: at(7, 9), backAtMs: at(7, 10), hasEnded: true };
    const options = { onMissed: 'once' } as const;
    const { runs } = await runAfter({ ...outage, options, isTakenMeanwhile: true });
    expect(runs).toEqual(['01-07T10:00 #1']);
  });

  it('the dead run is retried for as long as its own period says, though a later tick has a shorter one', async () => {
    const options = { onDeadRun: 'retry' } as const;
    const outage = { cronTime: OFFICE_HOURS, deadAtMs: at(7, 17), backAtMs: at(8, 9) + HOUR_MS / 2, options };
    expect((await runAfter(outage)).runs).toEqual(['01-07T17:00 #2']);
  });
  it.each(['forbid', 'allow'] as const)(
    'the dead run is retried for as long as its own period says, though a later tick has a shorter one: overlap %s',
    async (overlap) => {
      const options = { onDeadRun: 'retry', overlap } as const;
      const cronTime = '*/5 9-17 * * 1-5';
      const outage = { cronTime, deadAtMs: at(7, 17) + 55 * 60_000, backAtMs: at(8, 9) + 120_000, options };
      expect((await runAfter(outage)).runs).toEqual(['01-07T17:55 #2']);
    },
  );

  it.each<[string, Partial<Outage>]>([
    ['died', {}],
    ['was interrupted by the shutdown', { isInterrupted: true }],
    ['died, and the store does not answer at once about the history', { losesHistory: true }],
  ])('a run with overlap allow is retried also if the schedule has changed since: it %s', async (_, more) => {
    const options = { onDeadRun: 'retry', overlap: 'allow' } as const;
    const outage = { cronTime: '15 * * * *', deadAtMs: at(7, 9) + 15 * 60_000, backAtMs: at(7, 11), options };
    const changed = { ...outage, newCronTime: '30 * * * *', ...more };
    expect((await runAfter(changed)).runs).toEqual(['01-07T09:15 #2']);
  });
});

describe('after a change of the schedule', () => {
  const options = { onMissed: 'once' } as const;

  it.each([
    ['a later hour', '0 3 * * *', '0 4 * * *'],
    ['each hour', '0 3 * * *', '30 * * * *'],
    ['another month', '0 3 * 1 *', '0 3 2 1,7 *'],
    ['also each noon', '0 3 * * *', '0 3,9,12 * * *'],
  ])('to %s, no tick of the new one from before the change runs', async (_, cronTime, newCronTime) => {
    const ended = { cronTime, newCronTime, options, hasEnded: true, deadAtMs: at(1, 3), backAtMs: at(2, 10) };
    expect((await runAfter(ended)).runs).toEqual([]);
  });

  it('a tick that is missed later runs', async () => {
    const change = { cronTime: '0 3 * * *', newCronTime: '0 4 * * *', options, hasEnded: true };
    const times = { deadAtMs: at(1, 3), backAtMs: at(1, 10), backAgainAtMs: at(2, 10) };
    expect((await runAfter({ ...change, ...times })).runs).toEqual(['01-02T04:00 #1']);
  });

  it.each([
    ['as missed ticks', options],
    ['as dead runs', both],
  ])('no tick of before it runs %s, although the reply to a claim is lost', async (_, withOptions) => {
    const change = { cronTime: '0 3 * * *', newCronTime: '0 4 * * *', options: withOptions, hasEnded: true };
    const times = { deadAtMs: at(1, 3), backAtMs: at(1, 10), backAgainAtMs: at(1, 11) };
    expect((await runAfter({ ...change, ...times, losesClaim: true })).runs).toEqual([]);
  });

  it('to a later hour of the same day, the tick of that hour runs if it is missed', async () => {
    const change = { cronTime: '0 3 * * *', newCronTime: '0 10 * * *', options, hasEnded: true };
    const times = {
      ...{ deadAtMs: at(1, 3), backAtMs: at(1, 9) + 30 * 60_000 },
      backAgainAtMs: at(1, 10) + 5 * 60_000,
    };
    expect((await runAfter({ ...change, ...times })).runs).toEqual(['01-01T10:00 #1']);
  });

  it('a tick that was due since the change runs, although the store has not answered before', async () => {
    const change = { cronTime: '0 3 * * *', newCronTime: '0 10 * * *', options, hasEnded: true };
    const times = { deadAtMs: at(1, 3), backAtMs: at(1, 10) - 60_000, silentForMs: 120_000 };
    expect((await runAfter({ ...change, ...times })).runs).toEqual(['01-01T10:00 #1']);
  });

  it('a tick that is missed later runs, also if the run before the change has died too long ago', async () => {
    const change = { cronTime: '0 3 * * *', newCronTime: '0 4 * * *', options: both };
    const times = { deadAtMs: at(1, 3), backAtMs: at(3, 10), backAgainAtMs: at(4, 10) };
    expect((await runAfter({ ...change, ...times })).runs.at(-1)).toBe('01-04T04:00 #1');
  });

  it('and without one, the tick of the outage runs', async () => {
    const ended = { cronTime: '0 3 * * *', options, hasEnded: true, deadAtMs: at(1, 3), backAtMs: at(2, 10) };
    expect((await runAfter(ended)).runs).toEqual(['01-02T03:00 #1']);
  });
});
