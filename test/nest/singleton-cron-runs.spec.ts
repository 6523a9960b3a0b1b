import { randomUUID } from 'node:crypto';
import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { afterEach, describe, expect, it } from 'vitest';
import { Injectable, type Type } from '@nestjs/common';
import { Interval, ScheduleModule, SchedulerRegistry, Timeout } from '@nestjs/schedule';
import { Test, type TestingModule } from '@nestjs/testing';
import { CronJob, CronTime } from 'cron';
import { MemoryBackend } from '../../lib/backends/memory/index.js';
import {
  type CronRun,
  CronRuns,
  DistributedLockModule,
  LockConfigError,
  SingletonCron,
  type SingletonCronOptions,
} from '../../lib/index.js';
import { SettableClock } from '../../lib/testing/index.js';
import { Gate } from '../support/gate.js';
import { until } from '../support/until.js';

const HOUR_MS = 60 * 60 * 1_000;

const closing: TestingModule[] = [];
afterEach(async () => {
  for (const app of closing.splice(0)) await app.close();
});

async function boot(
  provider: Type | undefined,
  { backend = new MemoryBackend(), instance = 'one', errors = [] as unknown[], warned = [] as string[] } = {},
): Promise<TestingModule> {
  const shutdown = { drainMs: 0, abortGraceMs: 0 };
  const app = await Test.createTestingModule({
    imports: [DistributedLockModule.forRoot({ backend, instance, shutdown }), ScheduleModule.forRoot()],
    providers: provider ? [provider] : [],
  })
    .setLogger({
      log: () => undefined,
      warn: (text: string) => void warned.push(text),
      error: (error: unknown) => errors.push(error),
    })
    .compile();
  closing.push(app);
  return app.init();
}

/** A separate class for each spec, with one job. */
function jobWith(options: SingletonCronOptions, work: (run: CronRun) => unknown = () => undefined) {
  @Injectable()
  class Job {
    readonly runs: CronRun[] = [];

    @SingletonCron({ key: 'job', ...options })
    @Interval(50)
    async job(run: CronRun): Promise<unknown> {
      this.runs.push(run);
      return work(run);
    }
  }
  return Job;
}

const yearly = (options: SingletonCronOptions, work: (run: CronRun) => unknown = () => undefined) => {
  @Injectable()
  class Yearly {
    readonly runs: CronRun[] = [];

    @SingletonCron('0 0 1 1 *', { key: 'yearly', timeZone: 'UTC', ...options })
    async job(run: CronRun): Promise<unknown> {
      this.runs.push(run);
      return work(run);
    }
  }
  return Yearly;
};

it('a run that fails is logged with its job, and one that ends is not', async () => {
  const warned: string[] = [];
  const app = await boot(
    yearly({}, ({ attempt, tick }) => {
      if (warned.length === 0) throw new Error(`${tick.toISOString()} ${attempt}`);
    }),
    { warned },
  );
  const cronRuns = app.get(CronRuns);
  const { tick } = await cronRuns.runNow('yearly');
  expect(warned).toEqual([
    `The run of the job "yearly" for the tick ${tick.toISOString()} has failed (attempt 1).`,
  ]);
  expect(await cronRuns.runNow('yearly')).toMatchObject({ outcome: 'completed' });
  expect(warned).toHaveLength(1);
});

it('a run that obeys its signal after the time limit is logged', async () => {
  const warned: string[] = [];
  const work = ({ signal }: CronRun) =>
    new Promise<void>((resolve) => signal.addEventListener('abort', () => resolve()));
  const app = await boot(yearly({ maxRunMs: 1 }, work), { warned });
  const { tick } = await app.get(CronRuns).runNow('yearly');
  expect(warned).toEqual([
    `The run of the job "yearly" for the tick ${tick.toISOString()} has exceeded its time limit (attempt 1).`,
  ]);
});

describe('a tick at which all replicas were down', () => {
  const midnight = Date.UTC(2027, 0, 1);

  it.each([
    ['once', 1],
    ['skip', 0],
  ] as const)('with onMissed %j is run %j times when they are back', async (onMissed, count) => {
    const clock = new SettableClock(midnight - HOUR_MS);
    const backend = new MemoryBackend({ clock });
    const Job = yearly({ onMissed });
    const before = await boot(Job, { backend });
    await clock.advance(0);
    expect(before.get(Job).runs).toEqual([]);
    await before.close();
    await clock.advance(2 * HOUR_MS);
    const after = [await boot(Job, { backend }), await boot(Job, { backend })];
    await clock.advance(0);
    const ticks = after.flatMap((app) => app.get(Job).runs.map(({ tick }) => tick.getTime()));
    expect(ticks).toEqual(Array(count).fill(midnight));
  });

  it('logs the error of its run to the scheduler logger', async () => {
    const clock = new SettableClock(midnight - HOUR_MS);
    const backend = new MemoryBackend({ clock });
    const failure = new Error('job failed');
    const Job = yearly({ onMissed: 'once' }, () => Promise.reject(failure));
    await boot(Job, { backend });
    await clock.advance(2 * HOUR_MS);
    const errors: unknown[] = [];
    await boot(Job, { backend, errors });
    await clock.advance(0);
    expect(errors).toEqual([failure]);
  });
});

describe('onDeadRun retry', () => {
  it('runs the tick on another replica when the first has lost its run', async () => {
    const backend = new MemoryBackend();
    const gate = new Gate();
    const Job = jobWith({ onDeadRun: 'retry', leaseMs: 300 }, () => gate.passed);
    const apps = [await boot(Job, { backend }), await boot(Job, { backend })];
    const runs = () => apps.flatMap((app) => app.get(Job).runs);
    await until(() => runs().length === 1);
    const [first] = runs();
    await backend.forceRelease('lock/job:job', first!.fencingToken);
    await until(() => runs().some(({ attempt }) => attempt === 2));
    const second = runs().find(({ attempt }) => attempt === 2)!;
    expect(second.tick).toEqual(first!.tick);
    expect(second.fencingToken > first!.fencingToken).toBe(true);
    gate.open();
  });
});

describe('overlap allow', () => {
  it('runs a tick while an earlier run is in progress, each tick once', async () => {
    const backend = new MemoryBackend();
    const gate = new Gate();
    const Job = jobWith({ overlap: 'allow' }, () => gate.passed);
    const apps = [await boot(Job, { backend }), await boot(Job, { backend })];
    const ticks = () => apps.flatMap((app) => app.get(Job).runs.map(({ tick }) => tick.getTime()));
    await until(() => ticks().length >= 5);
    expect(new Set(ticks()).size).toBe(ticks().length);
    gate.open();
  });
});

describe('a guarded @Timeout', () => {
  const timeoutOf = (deployKey: string) => {
    @Injectable()
    class Warmup {
      runs = 0;
      @SingletonCron({ key: 'warmup', deployKey })
      @Timeout(10)
      async job({ attempt, signal }: CronRun): Promise<void> {
        this.runs += attempt;
        expect(signal.aborted).toBe(false);
      }
    }
    return Warmup;
  };

  it('runs once in the cluster for each deployment', async () => {
    const backend = new MemoryBackend();
    const [One, Two] = [timeoutOf('v1'), timeoutOf('v2')];
    const reasons: string[] = [];
    const listen = (message: unknown) => reasons.push((message as { reason: string }).reason);
    subscribe('nestjs-distributed-lock:tick-skipped', listen);
    const first = [await boot(One, { backend }), await boot(One, { backend }), await boot(One, { backend })];
    await until(() => reasons.length === 2);
    expect(first.reduce((sum, app) => sum + app.get(One).runs, 0)).toBe(1);
    const second = [await boot(Two, { backend }), await boot(Two, { backend })];
    await until(() => reasons.length === 3);
    unsubscribe('nestjs-distributed-lock:tick-skipped', listen);
    expect(second.reduce((sum, app) => sum + app.get(Two).runs, 0)).toBe(1);
  });
});

describe('the history of a job', () => {
  it('contains its runs with their outcomes, newest first, and the next tick', async () => {
    let run = 0;
    const Job = jobWith({}, () => {
      run += 1;
      if (run === 2) throw new Error('the second run fails');
    });
    const app = await boot(Job, { instance: 'node-1' });
    const runs = app.get(CronRuns);
    await until(async () => (await runs.history('job')).runs.length >= 3);
    const { runs: records, nextTick } = await runs.history('job');
    const [, second, first] = records.slice(-3);
    expect(first).toMatchObject({ instance: 'node-1', attempt: 1, outcome: 'completed', error: null });
    expect(second).toMatchObject({ outcome: 'failed', error: 'the second run fails' });
    expect(first!.ended!.getTime()).toBeGreaterThanOrEqual(first!.started.getTime());
    expect(first!.tick).toEqual(app.get(Job).runs[0]!.tick);
    expect(first!.fencingToken).toBe(app.get(Job).runs[0]!.fencingToken);
    expect(nextTick!.getTime() % 50).toBe(0);
    expect(nextTick!.getTime()).toBeGreaterThan(first!.tick.getTime());
  });

  it('has the tick of a run whose body has changed its date', async () => {
    const Job = yearly({}, ({ tick }) => tick.setFullYear(1999));
    const app = await boot(Job);
    const record = await app.get(CronRuns).runNow('yearly');
    expect(record).toMatchObject({ outcome: 'completed' });
    expect(record.tick.getFullYear()).toBeGreaterThan(1999);
    expect((await app.get(CronRuns).history('yearly')).runs).toEqual([record]);
  });

  it.each(['forbid', 'allow'] as const)(
    'tells with overlap %j which run is on and which died',
    async (overlap) => {
      const backend = new MemoryBackend();
      const gate = new Gate();
      const Job = jobWith({ overlap }, () => gate.passed);
      const [ours, theirs] = [await boot(Job, { backend }), await boot(undefined, { backend })];
      const runs = theirs.get(CronRuns);
      await until(async () => (await runs.history('job')).runs.length > 0);
      const oldest = async () => (await runs.history('job')).runs.at(-1)!;
      expect(await oldest()).toMatchObject({ outcome: 'running', ended: null, error: null });
      const { fencingToken, tick } = await oldest();
      const key = overlap === 'allow' ? `lock/run:job@${tick.getTime()}` : 'lock/job:job';
      await backend.forceRelease(key, fencingToken);
      expect(await oldest()).toMatchObject({ outcome: 'dead' });
      expect((await runs.history('job')).nextTick).toBeNull();
      gate.open();
      await ours.close();
    },
  );

  it('tells of a deployment too which run is on and which died', async () => {
    const backend = new MemoryBackend();
    const gate = new Gate();
    @Injectable()
    class Warmup {
      @SingletonCron({ key: 'warmup', deployKey: 'v1' })
      @Timeout(10)
      async job(): Promise<void> {
        await gate.passed;
      }
    }
    const [ours, theirs] = [await boot(Warmup, { backend }), await boot(undefined, { backend })];
    const newest = async () => (await theirs.get(CronRuns).history('warmup')).runs[0];
    await until(async () => (await newest()) !== undefined);
    expect(await newest()).toMatchObject({ outcome: 'running' });
    await backend.forceRelease('lock/run:warmup@=v1', (await newest())!.fencingToken);
    expect(await newest()).toMatchObject({ outcome: 'dead' });
    gate.open();
    await ours.close();
  });

  it('contains no entry that is not a run', async () => {
    const backend = new MemoryBackend();
    const app = await boot(undefined, { backend });
    for (const text of [
      'no JSON',
      '{}',
      '[1,1,"1"]',
      '[null,1,"1",1,null,"running","a"]',
      '[1e99,1,"1",1,1,"running","a"]',
    ])
      await backend.appendHistory('lock/notes:job', text);
    expect((await app.get(CronRuns).history('job')).runs).toEqual([]);
  });

  it('keeps the last runs, whatever their errors are', async () => {
    const Job = jobWith({}, () => {
      throw new Error(`${'"\\\u0000'.repeat(500)}\ud800`);
    });
    const app = await boot(Job, { instance: 'i'.repeat(200) });
    await until(async () => (await app.get(CronRuns).history('job')).runs.some(({ ended }) => ended));
    const { runs } = await app.get(CronRuns).history('job');
    expect(runs.at(-1)!.error).toMatch(/^"\\/);
  });

  it('of an unknown job is empty', async () => {
    const app = await boot(undefined);
    expect(await app.get(CronRuns).history(randomUUID())).toEqual({
      runs: [],
      nextTick: null,
      isPaused: false,
    });
  });
});

describe('a job that is created at run time', () => {
  const EACH_SECOND = '* * * * * *';

  const add = (app: TestingModule, body: (run: CronRun) => unknown, cronTime = EACH_SECOND) => {
    const onTick = app.get(CronRuns).guard('dynamic', { cronTime }, body);
    app.get(SchedulerRegistry).addCronJob(randomUUID(), CronJob.from({ cronTime, onTick, start: true }));
  };

  it('runs each tick once in two replicas', async () => {
    const backend = new MemoryBackend();
    const ticks: number[] = [];
    for (const app of [await boot(undefined, { backend }), await boot(undefined, { backend })])
      add(app, ({ tick }) => ticks.push(tick.getTime()));
    await until(() => ticks.length >= 3);
    expect(new Set(ticks).size).toBe(ticks.length);
    expect(ticks.every((tick) => tick % 1_000 === 0)).toBe(true);
  });

  it('keeps the ticks of its guard when setTime() gives its CronJob others, before and after it has fired', async () => {
    const warned: string[] = [];
    const hour = String(new Date().getUTCHours()).padStart(2, '0');
    const given = { cronTime: `0 ${hour} * * *`, timeZone: 'UTC' };
    const later = () => new CronTime(`1 ${hour} * * *`, 'UTC');
    const ticks: string[] = [];
    for (const firesBefore of [true, false]) {
      const app = await boot(undefined, { warned });
      const onTick = app.get(CronRuns).guard('dynamic', given, ({ tick }) => ticks.push(tick.toISOString()));
      const job = CronJob.from({ ...given, onTick });
      if (firesBefore) await onTick.call(job);
      job.setTime(later());
      await onTick.call(job);
      await onTick.call(job);
    }
    expect(ticks).toHaveLength(2);
    expect(ticks.every((tick) => tick.endsWith(`T${hour}:00:00.000Z`))).toBe(true);
    const warning = expect.stringContaining("CronRuns.guard('dynamic') has another schedule");
    expect(warned).toEqual([warning, warning]);
  });

  it('logs a warning if its CronJob has other ticks at some times only, and none if it writes the same ticks differently', async () => {
    const warned: string[] = [];
    const clock = new SettableClock(Date.UTC(2026, 10, 23, 10)); // A Monday.
    const app = await boot(undefined, { warned, backend: new MemoryBackend({ clock }) });
    const onTick = app
      .get(CronRuns)
      .guard('dynamic', { cronTime: '*/10 8-18 * * 1-5', timeZone: 'UTC' }, () => undefined);
    const same = CronJob.from({ cronTime: '0 */10 8-18 * * MON-FRI', timeZone: 'Etc/UTC', onTick });
    const daily = CronJob.from({ cronTime: '*/10 8-18 * * *', timeZone: 'UTC', onTick });
    await onTick.call(same);
    await onTick.call(daily);
    expect(warned).toEqual([]);
    await clock.advance(5 * 24 * HOUR_MS);
    await onTick.call(daily);
    await onTick.call(daily);
    expect(warned).toHaveLength(1);
  });

  it('is still taken over from a dead run after it was guarded again', async () => {
    const clock = new SettableClock(Date.UTC(2026, 11, 31, 23, 59, 59));
    const backend = new MemoryBackend({ clock });
    const apps = [await boot(undefined, { backend }), await boot(undefined, { backend })];
    const gate = new Gate();
    const runs: CronRun[] = [];
    const guard = (app: TestingModule) =>
      app
        .get(CronRuns)
        .guard(
          'dynamic',
          { cronTime: '0 0 1 1 *', timeZone: 'UTC', onDeadRun: 'retry', onMissed: 'once', leaseMs: 3_000 },
          (run) => {
            runs.push(run);
            return gate.passed;
          },
        );
    const [first, second] = [guard(apps[0]!), guard(apps[1]!)];
    await clock.advance(1_010);
    void first();
    await until(() => runs.length === 1);
    await second(); // Refused: this replica now watches the run of the first.
    const again = guard(apps[1]!);
    first[Symbol.dispose]();
    // By then the new guard has probed, and found the run in progress.
    for (let turn = 0; turn < 100; turn += 1) await new Promise((resolve) => setImmediate(resolve));
    await backend.forceRelease('lock/job:dynamic', runs[0]!.fencingToken);
    await until(async () => {
      await clock.advance(500);
      return runs.length === 2;
    });
    expect(runs[1]).toMatchObject({ tick: runs[0]!.tick, attempt: 2 });
    gate.open();
    again[Symbol.dispose]();
  });

  it('also runs with a context that throws for unknown properties', async () => {
    const app = await boot(undefined);
    const ticks: Date[] = [];
    const onTick = app
      .get(CronRuns)
      .guard('dynamic', { cronTime: EACH_SECOND }, ({ tick }) => ticks.push(tick));
    const refuse = () => {
      throw new Error('unknown name');
    };
    await onTick.call(new Proxy({}, { get: refuse, has: refuse }));
    expect(ticks).toHaveLength(1);
  });

  it('guards an interval as well', async () => {
    const backend = new MemoryBackend();
    const ticks: number[] = [];
    for (const app of [await boot(undefined, { backend }), await boot(undefined, { backend })]) {
      const onTick = app
        .get(CronRuns)
        .guard('dynamic', { everyMs: 100 }, ({ tick }) => ticks.push(tick.getTime()));
      app.get(SchedulerRegistry).addInterval(
        'dynamic',
        setInterval(() => void onTick(), 100),
      );
    }
    await until(() => ticks.length >= 5);
    expect(new Set(ticks).size).toBe(ticks.length);
  });

  it('logs its error to the scheduler logger, and continues', async () => {
    const errors: unknown[] = [];
    const app = await boot(undefined, { errors });
    const failure = new Error('job failed');
    add(app, () => {
      throw failure;
    });
    await until(() => errors.length >= 2);
    expect(errors[0]).toBe(failure);
  });

  it('runs missed ticks like a decorated job', async () => {
    const clock = new SettableClock(Date.UTC(2026, 5, 1));
    const backend = new MemoryBackend({ clock });
    const ticks: Date[] = [];
    const options = { cronTime: '0 0 1 1 *', timeZone: 'UTC', onMissed: 'once' } as const;
    for (const waitMs of [0, 365 * 24 * HOUR_MS]) {
      await clock.advance(waitMs);
      const app = await boot(undefined, { backend });
      app.get(CronRuns).guard('dynamic', options, ({ tick }) => ticks.push(tick));
      await clock.advance(0);
    }
    expect(ticks).toEqual([new Date(Date.UTC(2027, 0, 1))]);
  });

  it.each([
    [{}, /either options.cronTime or options.everyMs/],
    [{ cronTime: EACH_SECOND, everyMs: 100 }, /either options.cronTime or options.everyMs/],
    [{ cronTime: 'each day' }, /a schedule that the cron package understands/],
    [{ everyMs: 0 }, /everyMs/],
    [{ everyMs: 100, overlap: 'maybe' }, /'forbid' or 'allow'/],
    [{ everyMs: 100, deployKey: 'v1' }, /no option 'deployKey'/],
  ])('with the options %j is refused', async (options, message) => {
    const runs = (await boot(undefined)).get(CronRuns);
    const guard = () => runs.guard('dynamic', options as never, () => undefined);
    expect(guard).toThrow(LockConfigError);
    expect(guard).toThrow(message);
  });

  it('with an expression that never fires is refused', async () => {
    const runs = (await boot(jobWith({}))).get(CronRuns);
    const guard = () => runs.guard('never', { cronTime: '0 0 30 2 *', onMissed: 'once' }, () => undefined);
    expect(guard).toThrow(LockConfigError);
    expect(guard).toThrow(/guard\('never'\): expected a schedule that fires at some time/);
  });

  it('with the key of a decorated job is refused', async () => {
    const runs = (await boot(jobWith({}))).get(CronRuns);
    expect(() => runs.guard('job', { everyMs: 100 }, () => undefined)).toThrow(/a key of its own/);
  });
});
