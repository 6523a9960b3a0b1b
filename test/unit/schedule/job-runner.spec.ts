import { describe, expect, it, vi } from 'vitest';
import type { LockBackend } from '../../../lib/core/backend.js';
import type { Clock } from '../../../lib/core/clock.js';
import type { Locks } from '../../../lib/core/locks.js';
import { Elections } from '../../../lib/election/elections.js';
import type { CronRun } from '../../../lib/schedule/job.js';
import { JobRunner } from '../../../lib/schedule/job-runner.js';
import type { Job, JobOptions } from '../../../lib/schedule/job.js';
import { jobStoreKey, manualStoreKey } from '../../../lib/core/store-key.js';
import { encodeRecord } from '../../../lib/schedule/run-record.js';
import { type Plan, createCronPlan, createIntervalPlan } from '../../../lib/schedule/plan/plan.js';
import { Gate } from '../../support/gate.js';
import { MemoryBackend } from '../../../lib/backends/memory/memory-backend.js';
import { lockFixture, locksOn } from '../core/lock-fixture.js';
import type { ScriptedBackend } from '../scripted-backend.js';

const MINUTE_MS = 60_000;
const HOUR_MS = 60 * MINUTE_MS;
const LEASE_MS = 30_000;
/** The time at which the clock of {@link lockFixture} begins. */
const BEGIN_MS = Date.UTC(2026, 0, 1);

interface Seen extends CronRun {
  readonly by: string;
}

interface Surroundings {
  /** How other decorators handle a call of the job. */
  readonly around?: (call: () => unknown) => unknown;
  readonly isFiring?: () => boolean;
  /** The options of this replica, if it has others. */
  readonly ownOptions?: JobOptions;
  /** The plan of this replica, if it has another one; `null` if it has none. */
  readonly ownPlan?: Plan | null;
}

/** The store as a process sees it whose clock is ahead. */
function aheadBy(aheadMs: number, backend: ScriptedBackend): LockBackend {
  const { clock } = backend;
  const ahead: Clock = {
    monotonicMs: () => clock.monotonicMs(),
    wallMs: () => clock.wallMs() + aheadMs,
    after: (delayMs, callback) => clock.after(delayMs, callback),
  };
  return new Proxy<LockBackend>(backend, {
    get: (target, name) => {
      if (name === 'clock') return ahead;
      const value: unknown = Reflect.get(target, name, target);
      return typeof value === 'function' ? (value.bind(target) as unknown) : value;
    },
  });
}

/** Replicas that run one job each hour, and the results of its runs. */
function replicas(
  options: JobOptions = {},
  plan = createCronPlan({ cronTime: '0 * * * *', timeZone: 'UTC' }),
) {
  const { clock, backend, ours, theirs, another } = lockFixture();
  const runs: Seen[] = [];
  const errors: unknown[] = [];
  const replica = (
    locks: Locks,
    by: string,
    work: (run: CronRun) => unknown = () => undefined,
    {
      around = (call) => call(),
      isFiring = () => true,
      ownOptions = options,
      ownPlan = plan,
    }: Surroundings = {},
  ) => {
    const elections = new Elections(locks);
    const runner = new JobRunner({ locks, elections });
    const body = (run: CronRun) => {
      runs.push({ ...run, by });
      return work(run);
    };
    const job: Job = {
      ...{ key: 'job', plan: ownPlan ?? undefined, options: ownOptions, isFiring },
      ...{
        schedule: { text: 'test', timeZone: null },
        invoke: () => around(() => fire()),
        onError: (error) => errors.push(error),
      },
    };
    const { fire } = runner.guard(job, body);
    return { fire, runner, elections };
  };
  return { clock, backend, ours, theirs, another, runs, errors, replica };
}

const shown = (runs: readonly Seen[]) =>
  runs.map(({ by, tick, attempt }) => `${by} ${(tick.getTime() - BEGIN_MS) / HOUR_MS} #${attempt}`);

it('a missed tick is not claimed while another run is in progress, so other decorators are called once', async () => {
  const { clock, ours, theirs, runs, replica } = replicas({ onMissed: 'once' });
  await ours.jobs.registerTicks('job');
  const work = new Gate();
  const one = replica(ours, 'one', () => work.passed);
  await clock.advance(HOUR_MS);
  void one.fire();
  await clock.advance(HOUR_MS + 1_000);
  let calls = 0;
  const around = (call: () => unknown) => {
    calls += 1;
    return call();
  };
  replica(theirs, 'other', undefined, { around }).runner.start();
  await clock.advance(HOUR_MS / 2);
  expect(calls).toBe(0);
  work.open();
  await clock.advance(60_000);
  expect(calls).toBe(1);
  expect(shown(runs)).toEqual(['one 1 #1', 'other 2 #1']);
});

const cron = (cronTime: string) => createCronPlan({ cronTime, timeZone: 'UTC' });
it.each([
  ['a tick of both schedules', cron('0 * * * *'), cron('*/30 * * * *'), HOUR_MS, 500],
  ['a tick of the former schedule only', cron('0 * * * *'), cron('30 * * * *'), HOUR_MS, 500],
  [
    'a tick of an interval whose timer fires late',
    createIntervalPlan(4_000),
    createIntervalPlan(5_000),
    4_000,
    1_500,
  ],
])(
  'a replica that starts with another schedule leaves %s to the others',
  async (_, plan, ownPlan, tickMs, lateMs) => {
    const { clock, ours, theirs, runs, replica } = replicas({ onMissed: 'once' }, plan);
    const old = replica(ours, 'old');
    await clock.advance(tickMs + lateMs);
    await old.fire();
    await clock.advance(tickMs - 200);
    replica(theirs, 'new', undefined, { ownPlan }).runner.start();
    await clock.advance(200);
    await old.fire();
    expect(runs.map(({ by, tick }) => [by, tick.getTime() - BEGIN_MS])).toEqual([
      ['old', tickMs],
      ['old', 2 * tickMs],
    ]);
  },
);

it.each([
  ['shortly before it', 10, 2],
  ['long before it', 80, 4],
  ['more than a period before it', 150, 6],
])(
  'a tick is made up that is missed after a change of the interval, with the last run %s',
  async (_, minutesToChange, missedHour) => {
    const { clock, ours, theirs, another, runs, replica } = replicas(
      { onMissed: 'once' },
      createIntervalPlan(HOUR_MS),
    );
    const changed = { ownPlan: createIntervalPlan(2 * HOUR_MS) };
    const old = replica(ours, 'old');
    await clock.advance(HOUR_MS);
    await old.fire();
    await clock.advance(minutesToChange * MINUTE_MS);
    replica(theirs, 'new', undefined, changed).runner.start();
    await clock.advance(40 * MINUTE_MS);
    theirs.stopGranting();
    await clock.advance((missedHour - 1) * HOUR_MS - (minutesToChange + 40 - 10) * MINUTE_MS);
    replica(another(), 'back', undefined, changed).runner.start();
    await clock.advance(MINUTE_MS);
    expect(shown(runs)).toEqual(['old 1 #1', `back ${missedHour} #1`]);
  },
);

it('a missed tick whose run is in progress does not keep a later one from being made up', async () => {
  const given = replicas({ overlap: 'allow', onMissed: 'once', missedWithinMs: HOUR_MS });
  const { clock, backend, ours, runs, replica } = given;
  await ours.jobs.registerTicks('job');
  await clock.advance(HOUR_MS + 60_000);
  const hung = new Gate();
  const { fire, runner } = replica(ours, 'ours', ({ tick }) =>
    Number(tick) === BEGIN_MS + HOUR_MS ? hung.passed : undefined,
  );
  runner.start();
  await clock.advance(1_000);
  expect(shown(runs)).toEqual(['ours 1 #1']);
  await clock.advance(HOUR_MS - 61_000);
  backend.next('readTicks', { refuse: true });
  await fire();
  await clock.advance(10_000);
  expect(shown(runs)).toEqual(['ours 1 #1', 'ours 2 #1']);
  hung.open();
});

it('an interval has missed no tick while it fires once in each period, whatever its phase', async () => {
  const periodMs = 24_000;
  const { clock, ours, replica } = replicas({}, createIntervalPlan(periodMs));
  const { fire, runner } = replica(ours, 'ours');
  const [job] = runner.jobs.all;
  const missed = async () => (await runner.reader.read(job!)).info.missedTick;
  await ours.jobs.registerTicks('job');
  await clock.advance(11_000);
  for (let period = 0; period < 3; period += 1) {
    void fire();
    for (let passedMs = 0; passedMs < periodMs; passedMs += 1_000) {
      await clock.advance(1_000);
      expect(await missed()).toBeNull();
    }
  }
  await clock.advance(periodMs * 3);
  expect(await missed()).not.toBeNull();
});

it('a job with a new schedule has missed no tick from before this process had it, and then the next one', async () => {
  const { clock, ours, theirs, replica } = replicas();
  const { fire } = replica(ours, 'old');
  await ours.jobs.registerTicks('job');
  await clock.advance(HOUR_MS);
  await fire();
  await clock.advance(HOUR_MS * 0.75);
  const ownPlan = createCronPlan({ cronTime: '0,30 * * * *', timeZone: 'UTC' });
  const { runner } = replica(theirs, 'new', undefined, { ownPlan });
  runner.start();
  const missed = async () => (await runner.reader.read(runner.jobs.all[0]!)).info.missedTick;
  expect(await missed()).toBeNull();
  await clock.advance(HOUR_MS / 4 + 10_000);
  expect(Number(await missed())).toBe(BEGIN_MS + 2 * HOUR_MS);
});

it('a run that ends while its lock is read is not reported as dead', async () => {
  const { clock, backend, ours, theirs, replica } = replicas();
  const work = new Gate();
  const { fire } = replica(ours, 'ours', () => work.passed);
  const { runner } = replica(theirs, 'theirs');
  await clock.advance(HOUR_MS);
  void fire();
  await clock.advance(10);
  backend.next('inspect', { delayAnswerMs: 20 });
  const runs = runner.reader.readRuns('job');
  await clock.advance(10);
  work.open();
  await clock.advance(100);
  expect(await runs).toMatchObject([{ outcome: 'completed' }]);
});

it('a call of runNow() that was second does not get a manual run that died long ago', async () => {
  const { clock, backend, ours, theirs, replica } = replicas();
  const started = new Date(clock.wallMs());
  const dead = { tick: started, attempt: 1, isManual: true, instance: 'gone', fencingToken: 5n, started };
  const record = { ...dead, ended: null, outcome: 'running', error: null } as const;
  await ours.jobs.appendHistory('job', encodeRecord(record));
  const [first, second] = [replica(ours, 'first'), replica(theirs, 'second')];
  await clock.advance(HOUR_MS / 2);
  const start = ({ runner }: typeof first) =>
    runner.manualRuns.start(runner.jobs.all[0]!).then(
      () => 'a run',
      (error: unknown) => (error as Error).name,
    );
  backend.next('acquire', { delayAnswerMs: 1_000 });
  const firstCall = start(first);
  await clock.advance(10);
  // The first call has got its turn, and then not the lock of its run.
  backend.next('acquire', { refuse: true });
  const secondCall = start(second);
  await clock.advance(20_000);
  expect([await firstCall, await secondCall]).toEqual(['LockUnavailableError', 'LockUnavailableError']);
});

describe('a tick that is due during a manual run', () => {
  /** A replica whose first call of runNow() hangs, and whose second one runs for five minutes when the tick is due. */
  async function afterHungCall(hang: 'in a decorator' | 'in the method, and loses its lock') {
    const given = replicas();
    const { clock, backend, ours, runs, replica } = given;
    let isHung = true;
    const hung = new Promise(() => undefined);
    const isInMethod = hang === 'in the method, and loses its lock';
    const work = () => (isInMethod && isHung ? hung : runs.length < 3 && sleepFor(5 * MINUTE_MS));
    const around = (call: () => unknown) => (!isInMethod && isHung ? hung : call());
    const sleepFor = (ms: number) => new Promise<void>((resolve) => clock.after(ms, resolve));
    const { fire, runner } = replica(ours, 'ours', work, { around });
    const [job] = runner.jobs.all;
    void runner.manualRuns.start(job!);
    await clock.advance(1_000);
    for (const storeKey of isInMethod ? [jobStoreKey('lock', 'job'), manualStoreKey('lock', 'job')] : []) {
      const held = await backend.inspect(storeKey);
      expect(await backend.forceRelease(storeKey, held!.fencingToken)).toBe(true);
    }
    await clock.advance(HOUR_MS / 2);
    isHung = false;
    runs.length = 0;
    await clock.advance(HOUR_MS / 2 - 1_000 - MINUTE_MS);
    void runner.manualRuns.start(job!);
    await clock.advance(MINUTE_MS);
    await fire();
    expect(runs).toHaveLength(1);
    await clock.advance(10 * MINUTE_MS);
    return shown(runs.slice(1));
  }

  it('runs after it, also if an earlier call of runNow() hangs in a decorator of the method', async () => {
    expect(await afterHungCall('in a decorator')).toEqual(['ours 1 #1']);
  });

  it('runs after it, also if an earlier manual run hangs and has lost its lock', async () => {
    expect(await afterHungCall('in the method, and loses its lock')).toEqual(['ours 1 #1']);
  });
});

describe('a tick that is due after the process of a manual run has died', () => {
  const BEFORE = { 'while its turn lasts': 5_000, 'when its turn has ended': 12_000, 'long after': 20_000 };

  it.each(Object.entries(BEFORE))('runs when the lock of that run has ended: %s', async (_when, beforeMs) => {
    const { clock, ours, theirs, runs, replica } = replicas();
    const dying = replica(ours, 'dying', () => new Promise(() => undefined));
    const other = replica(theirs, 'other');
    await clock.advance(HOUR_MS - beforeMs);
    const [job] = dying.runner.jobs.all;
    void dying.runner.manualRuns.start(job!);
    await clock.advance(10);
    void ours.close();
    await clock.advance(beforeMs - 10);
    await other.fire();
    await clock.advance(LEASE_MS - beforeMs - 1_000);
    expect(shown(runs.slice(1))).toEqual([]);
    await clock.advance(5_000);
    expect(shown(runs.slice(1))).toEqual(['other 1 #1']);
  });

  it('runs then, also if the store does not say at once that a manual run is in progress', async () => {
    const { clock, backend, ours, theirs, runs, replica } = replicas();
    const dying = replica(ours, 'dying', () => new Promise(() => undefined));
    const other = replica(theirs, 'other');
    await clock.advance(HOUR_MS - 20_000);
    const [job] = dying.runner.jobs.all;
    void dying.runner.manualRuns.start(job!);
    await clock.advance(10);
    void ours.close();
    await clock.advance(19_990);
    backend.next('readTicks', { refuse: true });
    await other.fire();
    await clock.advance(15_000);
    expect(shown(runs.slice(1))).toEqual(['other 1 #1']);
  });
});

describe('a tick whose replica dies', () => {
  const never = () => new Promise(() => undefined);

  it('is run by another replica when the lease has ended, with a larger fencing token', async () => {
    const { clock, ours, theirs, runs, replica } = replicas({ onDeadRun: 'retry' });
    const [one, other] = [replica(ours, 'one', never), replica(theirs, 'other')];
    await clock.advance(HOUR_MS);
    void one.fire();
    await clock.advance(10);
    await other.fire();
    await clock.advance(LEASE_MS * 3);
    expect(shown(runs)).toEqual(['one 1 #1']);
    await ours.close();
    await clock.advance(LEASE_MS * 2);
    expect(shown(runs)).toEqual(['one 1 #1', 'other 1 #2']);
    expect(runs[1]!.fencingToken > runs[0]!.fencingToken).toBe(true);
  });

  it('too long ago is not retried, also if a manual run that came later dies', async () => {
    const { clock, ours, theirs, another, runs, replica } = replicas({
      ...{ onDeadRun: 'retry', staleAfterMs: 60_000 },
    });
    const one = replica(ours, 'one', never);
    await clock.advance(HOUR_MS);
    void one.fire();
    await clock.advance(10);
    await ours.close();
    await clock.advance(5 * MINUTE_MS);
    const dying = replica(theirs, 'dying', never);
    void dying.runner.manualRuns.start(dying.runner.jobs.all[0]!);
    await clock.advance(1_000);
    await theirs.close();
    replica(another(), 'other').runner.start();
    await clock.advance(LEASE_MS * 3);
    expect(runs.map(({ by, attempt }) => `${by} #${attempt}`)).toEqual(['one #1', 'dying #1']);
  });

  it('is run again although it was the only one of a deployment, and its claim had no reply', async () => {
    const { clock, backend, ours, runs, replica } = replicas({ deployKey: 'v2', onDeadRun: 'retry' });
    const { fire } = replica(ours, 'ours', undefined, { ownPlan: null });
    backend.next('acquire', { loseAnswer: true }, 2);
    await Promise.all([fire(), clock.advance(LEASE_MS * 3)]);
    expect(runs.map(({ by, attempt }) => `${by} #${attempt}`)).toEqual(['ours #2']);
  });

  it('is watched by the leader only', async () => {
    const { clock, ours, theirs, another, runs, replica } = replicas({
      ...{ leader: 'dispatcher', onDeadRun: 'retry' },
    });
    const dying = replica(ours, 'dying', never);
    dying.elections.start();
    await clock.advance(HOUR_MS);
    void dying.fire();
    await clock.advance(1_000);
    void ours.close();
    const [former, next] = [replica(theirs, 'former'), replica(another(), 'next')];
    former.elections.start();
    former.runner.start();
    await clock.advance(LEASE_MS - 5_000);
    next.elections.start();
    next.runner.start();
    void former.elections.join('dispatcher').leave();
    await clock.advance(LEASE_MS);
    expect(shown(runs)).toEqual(['dying 1 #1', 'next 1 #2']);
    const confirmed = vi.spyOn(former.elections, 'confirmTerm');
    await clock.advance(HOUR_MS / 2);
    expect(confirmed).not.toHaveBeenCalled();
  });

  it('is not run again without onDeadRun', async () => {
    const { clock, ours, theirs, runs, replica } = replicas();
    const [one, other] = [replica(ours, 'one', never), replica(theirs, 'other')];
    await clock.advance(HOUR_MS);
    void one.fire();
    await clock.advance(10);
    await other.fire();
    await ours.close();
    await clock.advance(LEASE_MS * 2);
    expect(shown(runs)).toEqual(['one 1 #1']);
  });

  it('is found by a replica that starts later, and the next tick runs on time', async () => {
    const { clock, ours, theirs, runs, replica } = replicas({ onDeadRun: 'retry' });
    const one = replica(ours, 'one', never);
    await clock.advance(HOUR_MS);
    void one.fire();
    await clock.advance(10);
    const late = replica(theirs, 'late');
    late.runner.start();
    await clock.advance(0);
    await ours.close();
    await clock.advance(LEASE_MS * 2);
    expect(shown(runs)).toEqual(['one 1 #1', 'late 1 #2']);
    await clock.advance(HOUR_MS);
    await late.fire();
    expect(shown(runs).at(-1)).toBe('late 2 #1');
  });

  it.each<['skip' | 'once']>([['skip'], ['once']])(
    'is found by a replica that starts when newer ticks have run, where ticks may overlap and onMissed is %j',
    async (onMissed) => {
      const { clock, ours, theirs, runs, replica } = replicas({
        ...{ onDeadRun: 'retry', overlap: 'allow', onMissed },
      });
      let isOn = true;
      const one = replica(ours, 'one', () => (isOn ? new Promise(() => undefined) : undefined));
      one.runner.start();
      for (let hour = 1; hour <= 3; hour += 1) {
        await clock.advance(HOUR_MS);
        isOn = hour <= 2;
        void one.fire();
        await clock.advance(0);
      }
      await ours.close();
      await clock.advance(LEASE_MS * 2);
      replica(theirs, 'back').runner.start();
      await clock.advance(LEASE_MS);
      expect(shown(runs)).toEqual(['one 1 #1', 'one 2 #1', 'one 3 #1', 'back 1 #2', 'back 2 #2']);
    },
  );

  it('is found among many others by a replica that starts, where ticks may overlap', async () => {
    const options: JobOptions = { onDeadRun: 'retry', overlap: 'allow' };
    const plan = createCronPlan({ cronTime: '* * * * *', timeZone: 'UTC' });
    const { clock, ours, theirs, runs, replica } = replicas(options, plan);
    const one = replica(ours, 'one', () => (runs.length === 1 ? never() : undefined));
    for (let minute = 1; minute <= 70; minute += 1) {
      await clock.advance(60_000);
      void one.fire();
      await clock.advance(0);
    }
    await ours.close();
    await clock.advance(LEASE_MS * 2);
    replica(theirs, 'back').runner.start();
    await clock.advance(LEASE_MS);
    expect(shown(runs.slice(70))).toEqual([`back ${1 / 60} #2`]);
  });

  it('is run again by a replica whose ticks may overlap, although they did not before', async () => {
    const { clock, backend, ours, theirs, runs, replica } = replicas({ onDeadRun: 'retry' });
    const one = replica(ours, 'one', never);
    await clock.advance(HOUR_MS);
    void one.fire();
    await clock.advance(10);
    await ours.close();
    await clock.advance(LEASE_MS * 2);
    let requestCount = 0;
    const readTicks = backend.readTicks.bind(backend);
    backend.readTicks = (key) => {
      requestCount += 1;
      return readTicks(key);
    };
    const ownOptions: JobOptions = { onDeadRun: 'retry', overlap: 'allow', onMissed: 'once' };
    replica(theirs, 'back', undefined, { ownOptions }).runner.start();
    await clock.advance(HOUR_MS);
    expect(shown(runs.slice(1))).toEqual(['back 1 #1']);
    // Each of the last hundred ticks was looked at once.
    expect(requestCount).toBeLessThan(200);
  });

  it('is retried soon if the shutdown has interrupted the run, however long its lease', async () => {
    const plan = createCronPlan({ cronTime: '* * * * *', timeZone: 'UTC' });
    const options: JobOptions = { onDeadRun: 'retry', leaseMs: HOUR_MS };
    const { clock, ours, theirs, runs, replica } = replicas(options, plan);
    const untilAborted = ({ signal }: CronRun) =>
      new Promise((_, reject) => signal.addEventListener('abort', () => reject(signal.reason as Error)));
    const one = replica(ours, 'one', untilAborted);
    const other = replica(theirs, 'other');
    await clock.advance(60_000);
    void one.fire().catch(() => undefined);
    await clock.advance(5);
    // It is refused, and watches the run from now on.
    await other.fire();
    void ours.drain({ drainMs: 100, abortGraceMs: 1_000 });
    await clock.advance(60_000);
    await other.fire();
    await clock.advance(1_000);
    expect(shown(runs.slice(1))[0]).toBe(`other ${1 / 60} #2`);
  });

  it('is run before a newer one', async () => {
    const { clock, ours, theirs, runs, replica } = replicas({ onDeadRun: 'retry' });
    const [one, other] = [replica(ours, 'one', never), replica(theirs, 'other')];
    await clock.advance(HOUR_MS);
    void one.fire();
    await clock.advance(10);
    await ours.close();
    await clock.advance(HOUR_MS);
    await other.fire();
    await clock.advance(10);
    expect(shown(runs)).toEqual(['one 1 #1', 'other 1 #2']);
  });

  it('is run no more often than maxAttempts', async () => {
    const { clock, ours, theirs, another, runs, replica } = replicas({ onDeadRun: 'retry', maxAttempts: 2 });
    const [one, other] = [replica(ours, 'one', never), replica(theirs, 'other', never)];
    await clock.advance(HOUR_MS);
    void one.fire();
    await clock.advance(10);
    await other.fire();
    await ours.close();
    await clock.advance(LEASE_MS * 2);
    expect(shown(runs)).toEqual(['one 1 #1', 'other 1 #2']);
    await theirs.close();
    await clock.advance(LEASE_MS * 2);
    const later = another();
    const third = replica(later, 'third');
    third.runner.start();
    await clock.advance(HOUR_MS);
    await third.fire();
    expect(shown(runs)).toEqual(['one 1 #1', 'other 1 #2', 'third 2 #1']);
  });

  it('is found long after by a replica that starts', async () => {
    const { clock, ours, theirs, runs, replica } = replicas({ onDeadRun: 'retry' });
    const one = replica(ours, 'one', never);
    await clock.advance(HOUR_MS);
    void one.fire();
    await clock.advance(10);
    await ours.close();
    await clock.advance(HOUR_MS * 2.5);
    replica(theirs, 'late').runner.start();
    await clock.advance(10);
    expect(shown(runs)).toEqual(['one 1 #1', 'late 1 #2']);
  });
});

/** A run in progress, which another replica watches, of a job that has been paused for a minute. */
async function pauseDuringRun(overlap: 'forbid' | 'allow') {
  const given = replicas({ onDeadRun: 'retry', overlap });
  const { clock, ours, theirs, replica } = given;
  const dying = replica(ours, 'dying', () => new Promise(() => undefined));
  const other = replica(theirs, 'other');
  await clock.advance(HOUR_MS);
  void dying.fire();
  await clock.advance(10);
  await other.fire();
  await theirs.jobs.setPaused('job', true);
  await clock.advance(MINUTE_MS);
  return given;
}

describe.each(['forbid', 'allow'] as const)(
  'with overlap %s, a run during which the job is paused',
  (overlap) => {
    it('is retried by the replica that watches it if it dies after the pause', async () => {
      const { clock, ours, theirs, runs } = await pauseDuringRun(overlap);
      await theirs.jobs.setPaused('job', false);
      await clock.advance(MINUTE_MS);
      await ours.close();
      await clock.advance(MINUTE_MS);
      expect(shown(runs)).toEqual(['dying 1 #1', 'other 1 #2']);
    });

    it('is retried by a replica that started during the pause', async () => {
      const { clock, ours, theirs, another, runs, replica } = await pauseDuringRun(overlap);
      const late = replica(another(), 'late');
      late.runner.start();
      await theirs.close();
      await clock.advance(MINUTE_MS);
      await ours.jobs.setPaused('job', false);
      await clock.advance(MINUTE_MS);
      await ours.close();
      await clock.advance(MINUTE_MS);
      expect(shown(runs)).toEqual(['dying 1 #1', 'late 1 #2']);
    });

    it('is not retried while the job is paused, nor are other decorators called', async () => {
      let calls = 0;
      const { clock, ours, another, runs, replica } = await pauseDuringRun(overlap);
      const around = (call: () => unknown) => ((calls += 1), call());
      replica(another(), 'late', undefined, { around }).runner.start();
      await ours.close();
      await clock.advance(10 * MINUTE_MS);
      expect(shown(runs)).toEqual(['dying 1 #1']);
      expect(calls).toBe(0);
    });
  },
);

it('with overlap allow, a run that was longer than ten periods is retried by a replica that starts later', async () => {
  const eachMinute = createCronPlan({ cronTime: '* * * * *', timeZone: 'UTC' });
  const { clock, ours, theirs, runs, replica } = replicas(
    { onDeadRun: 'retry', overlap: 'allow' },
    eachMinute,
  );
  const dying = replica(ours, 'dying', ({ tick }) =>
    Number(tick) === BEGIN_MS + 60_000 ? new Promise(() => undefined) : undefined,
  );
  for (let minute = 0; minute < 15; minute += 1) {
    await clock.advance(60_000);
    void dying.fire();
  }
  await clock.advance(10);
  await ours.close();
  await clock.advance(2 * 60_000);
  replica(theirs, 'late').runner.start();
  await clock.advance(60_000);
  expect(runs.filter(({ by }) => by === 'late').map(({ tick }) => Number(tick) - BEGIN_MS)).toEqual([60_000]);
});

it('with overlap allow, a run that dies during a pause is retried after it', async () => {
  const { clock, ours, theirs, runs } = await pauseDuringRun('allow');
  await ours.close();
  await clock.advance(2 * MINUTE_MS);
  await theirs.jobs.setPaused('job', false);
  await clock.advance(30_000);
  expect(shown(runs)).toEqual(['dying 1 #1', 'other 1 #2']);
});

describe('a dead run, where a decorator above the job', () => {
  const never = () => new Promise(() => undefined);
  const options: JobOptions = { onDeadRun: 'retry', maxAttempts: 2, staleAfterMs: 20 * 60_000 };

  async function died(around: Surroundings['around'] = (call) => call(), isFiring = () => true) {
    const { clock, ours, theirs, another, runs, replica } = replicas(options);
    const locks = [theirs, another()];
    const others = locks.map((each, index) =>
      replica(each, `other ${index}`, undefined, { around, isFiring }),
    );
    const one = replica(ours, 'one', never);
    await clock.advance(HOUR_MS);
    void one.fire();
    await clock.advance(10);
    await ours.close();
    for (const { runner } of others) runner.start();
    return { clock, runs, locks };
  }
  const attempts = (runs: readonly Seen[]) => runs.map(({ by, attempt }) => `${by.slice(0, 5)} #${attempt}`);

  it('does not call it, uses no attempt', async () => {
    let isOpen = false;
    const { clock, runs } = await died((call) => isOpen && call());
    await clock.advance(LEASE_MS * 4);
    expect(attempts(runs)).toEqual(['one #1']);
    isOpen = true;
    await clock.advance(LEASE_MS);
    expect(attempts(runs)).toEqual(['one #1', 'other #2']);
  });

  it('never calls it, it is no longer invoked once the run is stale', async () => {
    let entered = 0;
    const { clock } = await died(() => (entered += 1));
    await clock.advance(LEASE_MS * 4);
    expect(entered).toBeGreaterThan(0);
    await clock.advance(20 * 60_000);
    const before = entered;
    await clock.advance(10 * 60_000);
    expect(entered).toBe(before);
  });

  it('calls it later, the call has its own lock and runs in one replica', async () => {
    const calls: (() => unknown)[] = [];
    const { clock, runs } = await died((call) => void calls.push(call));
    await clock.advance(LEASE_MS * 3);
    expect(attempts(runs)).toEqual(['one #1']);
    expect(calls.length).toBeGreaterThanOrEqual(2);
    for (const call of calls) void call();
    await clock.advance(10);
    expect(attempts(runs)).toEqual(['one #1', 'other #2']);
    expect(runs[1]!.signal.aborted).toBe(false);
  });

  it('calls it after the application has ended, nothing runs', async () => {
    const calls: (() => unknown)[] = [];
    const { clock, runs, locks } = await died((call) => void calls.push(call));
    await clock.advance(LEASE_MS * 3);
    for (const each of locks) await each.close();
    await Promise.all(calls.map((call) => call()));
    expect(attempts(runs)).toEqual(['one #1']);
  });

  it('calls it after the job was deleted, nothing runs', async () => {
    const calls: (() => unknown)[] = [];
    let isFiring = true;
    const { clock, runs } = await died(
      (call) => void calls.push(call),
      () => isFiring,
    );
    await clock.advance(LEASE_MS * 3);
    isFiring = false;
    await Promise.all(calls.map((call) => call()));
    expect(attempts(runs)).toEqual(['one #1']);
  });
});

describe('a store that does not answer', () => {
  it.each([{ onDeadRun: 'retry' }, { onMissed: 'once' }] as const)(
    'is not asked more often for more ticks that it did not answer, with %j',
    async (options) => {
      const eachMinute = { cronTime: '* * * * *', timeZone: 'UTC' };
      const { clock, backend, ours, replica } = replicas(options, createCronPlan(eachMinute));
      const one = replica(ours, 'one');
      backend.next('acquire', { refuse: true }, Infinity);
      backend.next('readTicks', { refuse: true }, Infinity);
      for (let tick = 0; tick < 5; tick += 1) {
        await clock.advance(60_000);
        await one.fire();
      }
      const before = backend.count('readTicks');
      await clock.advance(60_000);
      expect(backend.count('readTicks') - before).toBeLessThanOrEqual(8);
      expect(backend.count('readTicks') - before).toBeGreaterThan(0);
    },
  );
});

describe('a run', () => {
  it('that fails has ended', async () => {
    const { clock, ours, theirs, runs, replica } = replicas({ onDeadRun: 'retry' });
    const failure = new Error('job failed');
    const failing = replica(ours, 'one', () => Promise.reject(failure));
    const other = replica(theirs, 'other');
    await clock.advance(HOUR_MS);
    await expect(failing.fire()).rejects.toBe(failure);
    await other.fire();
    await clock.advance(LEASE_MS * 2);
    expect(shown(runs)).toEqual(['one 1 #1']);
  });

  it.each([
    ['whose message is no text', Object.assign(new Error('job failed'), { message: { code: 'E_REAL' } })],
    [
      'that cannot be inspected',
      new Proxy(new Error('job failed'), {
        getPrototypeOf: () => {
          throw new Error('trap');
        },
      }),
    ],
  ])('throws the same error object as its job, also one %s', async (_, failure) => {
    const { clock, ours, replica } = replicas();
    const one = replica(ours, 'one', () => Promise.reject(failure));
    await clock.advance(HOUR_MS);
    const thrown = await one.fire().catch((error: unknown) => error);
    expect(Object.is(thrown, failure)).toBe(true);
  });

  it('that is interrupted by the shutdown is taken over', async () => {
    const { clock, ours, theirs, runs, replica } = replicas({ onDeadRun: 'retry' });
    const untilAborted = ({ signal }: CronRun) =>
      new Promise((_, reject) => signal.addEventListener('abort', () => reject(signal.reason as Error)));
    const [one, other] = [replica(ours, 'one', untilAborted), replica(theirs, 'other')];
    await clock.advance(HOUR_MS);
    const fired = one.fire();
    await clock.advance(10);
    await other.fire();
    const draining = ours.drain({ drainMs: 1_000, abortGraceMs: 1_000 });
    await Promise.all([expect(fired).rejects.toThrow(/shutting down/), clock.advance(2_000)]);
    await draining;
    await clock.advance(LEASE_MS * 2);
    expect(shown(runs)).toEqual(['one 1 #1', 'other 1 #2']);
  });

  it('that cannot acquire a lock because of the shutdown is taken over', async () => {
    const { clock, ours, theirs, runs, replica } = replicas({ onDeadRun: 'retry' });
    const gate = new Gate();
    const lockRow = async () => {
      await gate.passed;
      await ours.withLock('row', {}, () => undefined);
    };
    const [one, other] = [replica(ours, 'one', lockRow), replica(theirs, 'other')];
    await clock.advance(HOUR_MS);
    const fired = one.fire();
    await clock.advance(10);
    await other.fire();
    const draining = ours.drain({ drainMs: 1_000, abortGraceMs: 1_000 });
    gate.open();
    await Promise.all([expect(fired).rejects.toThrow(/shutting down/), clock.advance(2_000)]);
    await draining;
    await clock.advance(LEASE_MS * 2);
    expect(shown(runs)).toEqual(['one 1 #1', 'other 1 #2']);
  });

  it('starts with its jitter, which is the same in all replicas', async () => {
    const { clock, ours, theirs, runs, replica } = replicas({ jitterMs: 60_000 });
    const [one, other] = [replica(ours, 'one'), replica(theirs, 'other')];
    await clock.advance(HOUR_MS);
    const fired = [one.fire(), other.fire()];
    await clock.advance(1);
    expect(runs).toEqual([]);
    await clock.advance(60_000);
    await Promise.all(fired);
    expect(runs).toHaveLength(1);
  });

  it('starts before the next tick, however long its jitter', async () => {
    const { clock, ours, runs, replica } = replicas({ jitterMs: 5 * HOUR_MS, staleAfterMs: 24 * HOUR_MS });
    const one = replica(ours, 'one');
    for (let hour = 0; hour < 30; hour += 1) {
      await clock.advance(HOUR_MS);
      void one.fire();
    }
    await clock.advance(HOUR_MS);
    expect(runs).toHaveLength(30);
  });

  it.each([['during its jitter'], ['while it waits for the time of the store']])(
    'does not begin if its job is deleted %s',
    async (when) => {
      const { clock, ours, theirs, runs, replica } = replicas({ jitterMs: 60_000, maxEarlyMs: 0 });
      let isFiring = true;
      const [one, kept] = [
        replica(ours, 'one', undefined, { isFiring: () => isFiring }),
        replica(theirs, 'kept'),
      ];
      await clock.advance(when.includes('jitter') ? HOUR_MS : HOUR_MS - 400);
      const fired = [one.fire(), kept.fire()];
      await clock.advance(1);
      isFiring = false;
      await clock.advance(61_000);
      await Promise.all(fired);
      expect(runs.map(({ by }) => by)).toEqual(['kept']);
    },
  );

  it('is run by the replica that leads, and skipped by the others', async () => {
    const { clock, ours, theirs, runs, replica } = replicas({ leader: 'dispatcher' });
    const [one, other] = [replica(ours, 'one'), replica(theirs, 'other')];
    const fire = async (hours = 1) => {
      await clock.advance(hours * HOUR_MS);
      await Promise.all([one.fire(), other.fire()]);
    };
    await fire();
    expect(runs).toEqual([]);
    one.elections.start();
    await clock.advance(0);
    other.elections.start();
    await fire();
    void one.elections.join('dispatcher').leave();
    await clock.advance(2_000);
    await fire();
    expect(shown(runs)).toEqual(['one 2 #1', 'other 3 #1']);
  });

  describe('of an interval whose timer fires long before its tick', () => {
    const INTERVAL = createIntervalPlan(6 * MINUTE_MS);
    const AT_MINUTE_6 = [{ by: 'other', tick: new Date(BEGIN_MS + 6 * MINUTE_MS) }];

    it('is run by the replica that is elected in between', async () => {
      const { clock, ours, theirs, runs, replica } = replicas({ leader: 'dispatcher' }, INTERVAL);
      const [one, other] = [replica(ours, 'one'), replica(theirs, 'other')];
      one.elections.start();
      await clock.advance(4 * MINUTE_MS);
      other.elections.start();
      const firing = other.fire();
      await clock.advance(MINUTE_MS);
      void one.elections.join('dispatcher').leave();
      await clock.advance(MINUTE_MS + 1);
      await firing;
      expect(runs).toMatchObject(AT_MINUTE_6);
    });

    it('runs if the job was paused only in between', async () => {
      const { clock, ours, runs, replica } = replicas({}, INTERVAL);
      const other = replica(ours, 'other');
      await clock.advance(4 * MINUTE_MS);
      await ours.jobs.setPaused('job', true);
      const firing = other.fire();
      await clock.advance(MINUTE_MS);
      await ours.jobs.setPaused('job', false);
      await clock.advance(MINUTE_MS + 1);
      await firing;
      expect(runs).toMatchObject(AT_MINUTE_6);
    });

    it('runs if the store was down only in between', async () => {
      const { clock, backend, ours, runs, replica } = replicas({ onMissed: 'once' }, INTERVAL);
      const other = replica(ours, 'other');
      await clock.advance(4 * MINUTE_MS);
      backend.next('acquire', { refuse: true });
      const firing = other.fire();
      await clock.advance(2 * MINUTE_MS + 1);
      await firing;
      expect(runs).toMatchObject(AT_MINUTE_6);
    });
  });

  it('is run once the store confirms the leader whose clock has made a step, with onMissed: once', async () => {
    const { clock, backend, ours, runs, replica } = replicas({ leader: 'dispatcher', onMissed: 'once' });
    const one = replica(ours, 'one');
    one.runner.start();
    one.elections.start();
    await clock.advance(HOUR_MS);
    backend.next('renew', { refuse: true }, 3);
    backend.next('inspect', { refuse: true }, 3);
    clock.setWall(clock.wallMs() + 2_000);
    const firing = one.fire();
    await clock.advance(1);
    await firing;
    expect(runs).toEqual([]);
    await clock.advance(60_000);
    expect(runs.map(({ tick }) => tick.getTime() - BEGIN_MS)).toEqual([HOUR_MS]);
  });

  it('is run although the search for missed ticks had read the store before its claim failed', async () => {
    const { clock, backend, ours, runs, replica } = replicas({ onMissed: 'once' });
    const one = replica(ours, 'one');
    await clock.advance(HOUR_MS - 1_000);
    const slow = new Gate();
    const registerTicks = backend.registerTicks.bind(backend);
    vi.spyOn(backend, 'registerTicks').mockImplementationOnce(async (key) => {
      const state = await registerTicks(key);
      await slow.passed;
      return state;
    });
    one.runner.start();
    await clock.advance(1_000);
    backend.next('acquire', { refuse: true });
    await one.fire();
    slow.open();
    await clock.advance(MINUTE_MS);
    expect(runs.map(({ tick }) => tick.getTime() - BEGIN_MS)).toEqual([HOUR_MS]);
  });

  it('whose run was interrupted is retried in time, however much shorter that is than its lease', async () => {
    const options = { onDeadRun: 'retry', staleAfterMs: 10_000 } as const;
    const { clock, ours, theirs, runs, replica } = replicas(options);
    const work = ({ signal }: CronRun) =>
      new Promise((_, reject) => {
        const fail: (reason: unknown) => void = reject;
        signal.addEventListener('abort', () => fail(signal.reason));
      });
    const [one, other] = [replica(ours, 'one', work), replica(theirs, 'other')];
    await clock.advance(HOUR_MS);
    const firing = Promise.allSettled([one.fire()]);
    await clock.advance(10);
    await other.fire();
    await clock.advance(1_000);
    const draining = ours.drain({ drainMs: 0, abortGraceMs: 1_000 });
    await clock.advance(12_000);
    await Promise.all([draining, firing]);
    expect(runs.map(({ by }) => by)).toEqual(['one', 'other']);
  });

  it('of an overlapping job begins while an earlier one is in progress', async () => {
    const { clock, ours, theirs, runs, replica } = replicas({ overlap: 'allow' });
    const gate = new Gate();
    const [one, other] = [
      replica(ours, 'one', () => gate.passed),
      replica(theirs, 'other', () => gate.passed),
    ];
    for (let hour = 1; hour <= 3; hour += 1) {
      await clock.advance(HOUR_MS);
      void one.fire();
      void other.fire();
      await clock.advance(10);
    }
    expect(runs.map(({ tick }) => tick.getTime() - BEGIN_MS)).toEqual([HOUR_MS, 2 * HOUR_MS, 3 * HOUR_MS]);
    gate.open();
    await clock.advance(0);
  });
});

describe('a tick at which all replicas were down', () => {
  it('is run by the next leader, whose timer had fired early because its clock is ahead', async () => {
    const { clock, backend, ours, runs, replica } = replicas({ leader: 'dispatcher', onMissed: 'once' });
    const [one, other] = [replica(ours, 'one'), replica(locksOn(aheadBy(2_000, backend), 'theirs'), 'other')];
    one.elections.start();
    for (const { runner } of [one, other]) runner.start();
    await clock.advance(HOUR_MS - 2_000);
    other.elections.start();
    await other.fire();
    void one.elections.join('dispatcher').leave();
    await clock.advance(1_000);
    expect(runs).toEqual([]);
    await clock.advance(5_000);
    expect(shown(runs)).toEqual(['other 1 #1']);
  });

  it('is run although the store was away when its timer fired early, as the clock is ahead', async () => {
    const { clock, backend, runs, replica } = replicas({ onMissed: 'once' });
    const one = replica(locksOn(aheadBy(2_000, backend)), 'one');
    one.runner.start();
    await clock.advance(HOUR_MS - 2_000);
    backend.next('acquire', { refuse: true }, 2);
    await Promise.all([one.fire(), clock.advance(1_000)]);
    expect(runs).toEqual([]);
    await clock.advance(5_000);
    expect(shown(runs)).toEqual(['one 1 #1']);
  });

  it('is found at once when the store answers again, also by a process whose clock is far ahead', async () => {
    const plan = createCronPlan({ cronTime: '* * * * *', timeZone: 'UTC' });
    const { clock, backend, runs, replica } = replicas({ onMissed: 'once' }, plan);
    const one = replica(locksOn(aheadBy(HOUR_MS, backend)), 'one');
    one.runner.start();
    await clock.advance(5_000);
    for (let outage = 1; outage <= 2; outage += 1) {
      await clock.advance(3 * MINUTE_MS - 5_000);
      backend.next('acquire', { refuse: true }, 2);
      await Promise.all([one.fire(), clock.advance(5_000)]);
    }
    expect(runs.map(({ tick }) => tick.getTime() - BEGIN_MS)).toEqual([3 * MINUTE_MS, 6 * MINUTE_MS]);
  });

  it('is run if its timer fired early during a pause that ends before it', async () => {
    const { clock, backend, runs, replica } = replicas();
    const ahead = locksOn(aheadBy(2_000, backend));
    const one = replica(ahead, 'one');
    await clock.advance(HOUR_MS - 2_000);
    await ahead.jobs.setPaused('job', true);
    const firing = one.fire();
    await clock.advance(1_000);
    await ahead.jobs.setPaused('job', false);
    await clock.advance(1_000);
    await firing;
    expect(shown(runs)).toEqual(['one 1 #1']);
  });

  it('is run by the next leader if no process led', async () => {
    const { clock, ours, theirs, runs, replica } = replicas({ leader: 'dispatcher', onMissed: 'once' });
    const [one, other] = [replica(ours, 'one'), replica(theirs, 'other')];
    one.runner.start();
    one.elections.start();
    await clock.advance(1_000);
    await one.elections.join('dispatcher').leave();
    other.runner.start();
    await clock.advance(3.5 * HOUR_MS);
    await other.fire();
    expect(runs).toEqual([]);
    other.elections.start();
    await clock.advance(1_000);
    expect(shown(runs)).toEqual(['other 3 #1']);
  });

  it('is run once they are back, but not by the first registration', async () => {
    const { clock, ours, theirs, runs, replica } = replicas({ onMissed: 'once' });
    replica(ours, 'one').runner.start();
    await clock.advance(0);
    expect(runs).toEqual([]);
    await ours.close();
    await clock.advance(3.5 * HOUR_MS);
    const back = [replica(theirs, 'back'), replica(theirs, 'too')];
    for (const { runner } of back) runner.start();
    await clock.advance(0);
    expect(runs.map(({ tick, attempt }) => [tick.getTime() - BEGIN_MS, attempt])).toEqual([[3 * HOUR_MS, 1]]);
  });

  it.each(['forbid', 'allow'] as const)(
    'is not looked for in a job whose newest tick has run, where overlap is %j',
    async (overlap) => {
      const { clock, ours, theirs, runs, replica } = replicas({ onMissed: 'once', overlap });
      const one = replica(ours, 'one');
      one.runner.start();
      await clock.advance(HOUR_MS);
      await one.fire();
      let calls = 0;
      const around = () => (calls += 1);
      replica(theirs, 'late', undefined, { around }).runner.start();
      await clock.advance(LEASE_MS);
      expect([shown(runs), calls]).toEqual([['one 1 #1'], 0]);
    },
  );

  it('is not run if it is older than the registration, even if ticks may overlap', async () => {
    const { clock, ours, theirs, another, runs, replica } = replicas({ onMissed: 'once', overlap: 'allow' });
    await clock.advance(3.5 * HOUR_MS);
    for (const locks of [ours, theirs]) {
      replica(locks, 'first').runner.start();
      await clock.advance(1_000);
    }
    expect(runs).toEqual([]);
    await clock.advance(HOUR_MS);
    replica(another(), 'back').runner.start();
    await clock.advance(0);
    expect(shown(runs)).toEqual(['back 4 #1']);
  });

  it.each<['forbid' | 'allow', 'forbid' | 'allow']>([
    ['forbid', 'allow'],
    ['allow', 'forbid'],
  ])('is not one that was run before a deployment from overlap %j to %j', async (before, after) => {
    const { clock, ours, theirs, another, runs, replica } = replicas({ onMissed: 'once', overlap: before });
    const next = replicas({ onMissed: 'once', overlap: after });
    const old = replica(ours, 'old');
    old.runner.start();
    await clock.advance(HOUR_MS);
    await old.fire();
    await ours.close();
    expect(shown(runs)).toEqual(['old 1 #1']);
    next.replica(theirs, 'new').runner.start();
    await clock.advance(1_000);
    expect(next.runs).toEqual([]);
    await theirs.close();
    await clock.advance(HOUR_MS);
    next.replica(another(), 'back').runner.start();
    await clock.advance(1_000);
    expect(shown(next.runs)).toEqual(['back 2 #1']);
  });

  it.each(['forbid', 'allow'] as const)(
    'is not one whose jitter an older deployment without onMissed waits for, where overlap is %j',
    async (overlap) => {
      const { clock, ours, theirs, another, runs, replica } = replicas({ overlap, jitterMs: MINUTE_MS });
      const ownOptions: JobOptions = { overlap, jitterMs: MINUTE_MS, onMissed: 'once' };
      const old = replica(ours, 'old');
      await clock.advance(HOUR_MS);
      const fired = old.fire();
      await clock.advance(1);
      replica(theirs, 'new', undefined, { ownOptions }).runner.start();
      await clock.advance(2 * MINUTE_MS);
      await fired;
      expect(shown(runs)).toEqual(['old 1 #1']);
      await Promise.all([ours.close(), theirs.close()]);
      await clock.advance(HOUR_MS);
      replica(another(), 'back', undefined, { ownOptions }).runner.start();
      await clock.advance(2 * MINUTE_MS);
      expect(shown(runs)).toEqual(['old 1 #1', 'back 2 #1']);
    },
  );

  it('is not one that an older deployment without onMissed has run, however short its staleAfterMs', async () => {
    const options = { overlap: 'allow', staleAfterMs: 1_000 } as const;
    const { clock, backend, ours, theirs, another, runs, replica } = replicas(options);
    const ownOptions: JobOptions = { ...options, onMissed: 'once' };
    const old = replica(ours, 'old');
    replica(theirs, 'new', undefined, { ownOptions }).runner.start();
    await clock.advance(HOUR_MS);
    await old.fire();
    await clock.advance(MINUTE_MS);
    // Makes the store delete the ticks that it need not keep any more.
    const tick = { tickMs: clock.wallMs(), maxEarlyMs: 0, staleAfterMs: 0 };
    for (let number = 0; number < 1_000; number += 1)
      await backend.execute({
        acquire: [{ key: `other ${number}`, holder: 'any', leaseMs: 1_000, instance: 'other', tick }],
      });
    replica(another(), 'late', undefined, { ownOptions }).runner.start();
    await clock.advance(1_000);
    expect(shown(runs)).toEqual(['old 1 #1']);
  });

  it('is skipped without onMissed', async () => {
    const { clock, ours, theirs, runs, replica } = replicas();
    const one = replica(ours, 'one');
    await clock.advance(HOUR_MS);
    await one.fire();
    await ours.close();
    await clock.advance(3.5 * HOUR_MS);
    replica(theirs, 'back').runner.start();
    await clock.advance(0);
    expect(shown(runs)).toEqual(['one 1 #1']);
  });

  it('is skipped when it is older than missedWithinMs', async () => {
    const { clock, ours, theirs, runs, replica } = replicas({ onMissed: 'once', missedWithinMs: 60_000 });
    replica(ours, 'one').runner.start();
    await clock.advance(3 * HOUR_MS + 61_000);
    await ours.close();
    replica(theirs, 'back').runner.start();
    await clock.advance(0);
    expect(runs).toEqual([]);
  });

  it('is run when the store answers again', async () => {
    const { clock, backend, ours, runs, replica } = replicas({ onMissed: 'once' });
    const one = replica(ours, 'one');
    one.runner.start();
    await clock.advance(HOUR_MS);
    backend.next('acquire', { refuse: true }, 3);
    await one.fire();
    expect(runs).toEqual([]);
    await clock.advance(60_000);
    expect(shown(runs)).toEqual(['one 1 #1']);
  });

  it('reports the error of its run, which no scheduler would report', async () => {
    const { clock, ours, theirs, errors, replica } = replicas({ onMissed: 'once' });
    replica(ours, 'one').runner.start();
    await clock.advance(2 * HOUR_MS);
    await ours.close();
    const failure = new Error('job failed');
    replica(theirs, 'back', () => Promise.reject(failure)).runner.start();
    await clock.advance(0);
    expect(errors).toEqual([failure]);
  });
});

it('a plan that cannot be read is reported, and ends nothing else', async () => {
  const { clock, ours } = lockFixture();
  const runner = new JobRunner({ locks: ours, elections: new Elections(ours) });
  const failure = new Error('no such zone');
  const errors: unknown[] = [];
  let isBroken = false;
  const job: Job = {
    ...{
      key: 'job',
      options: { onMissed: 'once' },
      isFiring: () => true,
      schedule: { text: 'test', timeZone: null },
      invoke: () => undefined,
    },
    onError: (error) => errors.push(error),
    get plan() {
      if (isBroken) throw failure;
      return createIntervalPlan(HOUR_MS);
    },
  };
  const { fire } = runner.guard(job, () => undefined);
  isBroken = true;
  runner.start();
  await clock.advance(0);
  expect(errors).toEqual([failure]);
  expect(fire).toBeDefined();
});

describe('an expression that a deployment changes', () => {
  it.each([
    ['0 * * * *', '30 * * * *', [0, 1, 1.5, 2.5]],
    ['0 * * * *', '*/30 * * * *', [0, 1, 1.5, 2, 2.5]],
    ['*/30 * * * *', '0 * * * *', [0, 0.5, 1, 2]],
  ])('from %j to %j leaves no tick out and runs none twice', async (before, after, expected) => {
    const { clock, ours, theirs, runs, replica } = replicas(
      {},
      createCronPlan({ cronTime: before, timeZone: 'UTC' }),
    );
    const next = replicas({}, createCronPlan({ cronTime: after, timeZone: 'UTC' }));
    const old = replica(ours, 'old');
    const plans = [
      createCronPlan({ cronTime: before, timeZone: 'UTC' }),
      createCronPlan({ cronTime: after, timeZone: 'UTC' }),
    ];
    const renewed = new JobRunner({ locks: theirs, elections: new Elections(theirs) });
    const job: Job = {
      ...{ key: 'job', plan: plans[1], options: {}, isFiring: () => true },
      ...{ schedule: { text: 'test', timeZone: null }, invoke: () => undefined, onError: () => undefined },
    };
    // Both replicas run from 1:00 to 1:10.
    const fires: [atHour: number, fire: () => Promise<unknown>][] = [];
    const fired = (
      plan: (typeof plans)[number],
      fromHour: number,
      toHour: number,
      fire: () => Promise<unknown>,
    ) => {
      for (
        let at = plan.next(BEGIN_MS + fromHour * HOUR_MS - 1);
        at! <= BEGIN_MS + toHour * HOUR_MS;
        at = plan.next(at!)
      )
        fires.push([(at! - BEGIN_MS) / HOUR_MS, fire]);
    };
    fired(plans[0]!, 0, 1.1, old.fire);
    let renewedFire: (() => Promise<unknown>) | undefined;
    fired(plans[1]!, 1, 2.9, async () => {
      renewedFire ??= renewed.guard(job, (run) => runs.push({ ...run, by: 'new' })).fire;
      return renewedFire();
    });
    for (const [hour, fire] of fires.sort(([one], [other]) => one - other)) {
      await clock.advance(BEGIN_MS + hour * HOUR_MS - clock.wallMs());
      await fire();
    }
    expect(runs.map(({ tick }) => (tick.getTime() - BEGIN_MS) / HOUR_MS)).toEqual(expected);
    expect(next.runs).toEqual([]);
  });
});

it('lets any number of jobs wait for the shutdown, without a warning about a leak', () => {
  const { stopping } = lockFixture().ours;
  // The property that `getMaxListeners` of Node reads.
  const limit = Object.getOwnPropertySymbols(stopping).find(
    ({ description }) => description === 'events.maxEventTargetListeners',
  );
  expect(limit && Reflect.get(stopping, limit)).toBe(0);
});

it('a job with a leader fails at the boot if the store does not allow the lease of the election', () => {
  const backend = Object.assign(new MemoryBackend(), { maxLeaseMs: 10_000 });
  const locks = locksOn(backend);
  const runner = new JobRunner({ locks, elections: new Elections(locks) });
  const job: Job = {
    ...{ key: 'job', plan: createIntervalPlan(1_000), options: { leader: 'boss', leaseMs: 5_000 } },
    // The scheduler starts its timer later.
    ...{ isFiring: () => false, schedule: { text: 'test', timeZone: null } },
    ...{ invoke: () => undefined, onError: () => undefined },
  };
  expect(() => runner.register({ instance: {}, method: 'run', guard: {} }, job)).toThrow(
    /leaseMs of election 'boss'/,
  );
});
