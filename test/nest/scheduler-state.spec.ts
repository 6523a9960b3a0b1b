import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { afterEach, describe, expect, it } from 'vitest';
import { type DynamicModule, Injectable, type Type } from '@nestjs/common';
import { Cron, Interval, ScheduleModule, SchedulerRegistry } from '@nestjs/schedule';
import { Test, type TestingModule } from '@nestjs/testing';
import { CronJob, CronTime } from 'cron';
import { MemoryBackend } from '../../lib/backends/memory/index.js';
import { jobStoreKey } from '../../lib/core/store-key.js';
import {
  CronRuns,
  DistributedLockModule,
  LeaderElection,
  type LockEventMessage,
  OnElected,
  SingletonCron,
  type SingletonCronOptions,
} from '../../lib/index.js';
import { SettableClock } from '../../lib/testing/index.js';
import { until } from '../support/until.js';

const EACH_SECOND = '* * * * * *';
const HOUR_MS = 60 * 60 * 1_000;
const ALL_OFF = { cronJobs: false, intervals: false, timeouts: false };

const closing: TestingModule[] = [];
afterEach(async () => {
  for (const app of closing.splice(0)) await app.close();
});

interface Boot {
  readonly backend?: MemoryBackend;
  readonly instance?: string;
  readonly schedule?: Parameters<typeof ScheduleModule.forRoot>[0] | 'none';
  readonly warnings?: string[];
  /** Further modules. */
  readonly imports?: readonly DynamicModule[];
}

async function boot(
  providers: Type[],
  { backend = new MemoryBackend(), instance = 'one', schedule = {}, warnings = [], imports = [] }: Boot = {},
): Promise<TestingModule> {
  const app = await Test.createTestingModule({
    imports: [
      DistributedLockModule.forRoot({ backend, instance }),
      ...(schedule === 'none' ? [] : [ScheduleModule.forRoot(schedule)]),
      ...imports,
    ],
    providers,
  })
    .setLogger({ log: () => undefined, warn: (text: string) => warnings.push(text), error: () => undefined })
    .compile();
  closing.push(app);
  return app.init();
}

/** The instances that were elected. */
async function electedDuring(work: (elected: readonly string[]) => Promise<void>): Promise<void> {
  const elected: string[] = [];
  const note = (message: unknown) => elected.push((message as LockEventMessage<'elected'>).instance);
  subscribe('nestjs-distributed-lock:elected', note);
  try {
    await work(elected);
  } finally {
    unsubscribe('nestjs-distributed-lock:elected', note);
  }
}

abstract class Recording {
  readonly ticks: Date[] = [];
}

/** A separate class for each spec. */
function jobWith(
  options: SingletonCronOptions,
  cronTime: string | Date = EACH_SECOND,
  cronOptions: Parameters<typeof Cron>[1] = {},
): Type<Recording> {
  @Injectable()
  class Job extends Recording {
    @SingletonCron({ key: 'job', ...options })
    @Cron(cronTime, { name: 'job', ...cronOptions })
    async job({ tick }: { tick: Date }): Promise<void> {
      this.ticks.push(tick);
    }
  }
  return Job;
}

const led = { leader: 'boss' };
const yearly = ['0 0 1 1 *', { timeZone: 'UTC' }] as const;

/** Joins the election for work besides the jobs. A separate class for each spec. */
function bossWith(): Type {
  @Injectable()
  class Boss {
    @OnElected('boss')
    work(): void {}
  }
  return Boss;
}

/** How often the activator has checked the stopped job since this call. */
function countChecks(cronJob: CronJob): () => number {
  let checks = 0;
  Object.defineProperty(cronJob, 'isActive', {
    get() {
      checks += 1;
      return false;
    },
  });
  return () => checks;
}

const cronJobOf = (app: TestingModule) => app.get(SchedulerRegistry).getCronJob('job');

/** A backend, and a job of next year that is registered in it. */
async function missedYear() {
  const clock = new SettableClock(Date.UTC(2026, 5, 1));
  const backend = new MemoryBackend({ clock });
  const before = await boot([jobWith({ onMissed: 'once' }, ...yearly)], { backend });
  await clock.advance(0);
  await before.close();
  await clock.advance(365 * 24 * HOUR_MS);
  return { clock, backend };
}

describe('a process whose scheduler does not fire a job', () => {
  it.each([
    ['as it fires no job at all', ALL_OFF, {}],
    ['as there is none', 'none', {}],
    ['as the job is disabled', {}, { disabled: true }],
    ['as its first firing is delayed', {}, { initialDelay: HOUR_MS }],
  ] as const)('%s, leaves its election to others', async (_, schedule, cronOptions) => {
    await electedDuring(async (elected) => {
      const backend = new MemoryBackend();
      await boot([jobWith(led, EACH_SECOND, cronOptions)], { backend, instance: 'web', schedule });
      const worker = jobWith(led);
      const app = await boot([worker], { backend, instance: 'worker' });
      await until(() => app.get(worker).ticks.length >= 2);
      expect(elected).toEqual(['worker']);
    });
  });

  it.each([
    ['as it fires no job at all', ALL_OFF, {}],
    ['as there is none', 'none', {}],
    ['as the job is disabled', {}, { disabled: true }],
    ['as its first firing is delayed', {}, { initialDelay: HOUR_MS }],
  ] as const)('%s, does not run missed ticks', async (_, schedule, cronOptions) => {
    const { clock, backend } = await missedYear();
    const web = jobWith({ onMissed: 'once' }, yearly[0], { ...yearly[1], ...cronOptions });
    const app = await boot([web], { backend, schedule });
    await clock.advance(60_000);
    expect(app.get(web).ticks).toEqual([]);
    const worker = jobWith({ onMissed: 'once' }, ...yearly);
    const other = await boot([worker], { backend });
    await clock.advance(0);
    expect(other.get(worker).ticks).toEqual([new Date(Date.UTC(2027, 0, 1))]);
  });

  it.each(['a method', 'a call of join()'])('leaves its election to others where %s joins it', async (by) => {
    await electedDuring(async (elected) => {
      const backend = new MemoryBackend();
      const providers = by === 'a method' ? [bossWith(), jobWith(led)] : [jobWith(led)];
      const web = await boot(providers, { backend, instance: 'web', schedule: ALL_OFF });
      if (by !== 'a method') expect(web.get(LeaderElection).join('boss').isLeader()).toBe(false);
      const worker = jobWith(led);
      const app = await boot([worker], { backend, instance: 'worker' });
      await until(() => app.get(worker).ticks.length >= 2);
      expect(elected).toEqual(['worker']);
    });
  });

  it('campaigns in an election that was joined before, once the job is started', async () => {
    const job = jobWith(led, EACH_SECOND, { disabled: true });
    const app = await boot([job]);
    const candidate = app.get(LeaderElection).join('boss');
    app.get(SchedulerRegistry).getCronJob('job').start();
    await until(() => candidate.isLeader());
  });

  it('boots without ScheduleModule, and logs a warning', async () => {
    const warnings: string[] = [];
    await boot([jobWith({})], { schedule: 'none', warnings });
    expect(warnings).toEqual([
      expect.stringMatching(/does not run its job by itself: job\. Import ScheduleModule\.forRoot/),
    ]);
  });

  it('takes no part in the election of an interval either', async () => {
    @Injectable()
    class Job extends Recording {
      @SingletonCron({ key: 'job', leader: 'boss' })
      @Interval(50)
      async job({ tick }: { tick: Date }): Promise<void> {
        this.ticks.push(tick);
      }
    }
    await electedDuring(async (elected) => {
      const backend = new MemoryBackend();
      await boot([Job], { backend, instance: 'web', schedule: { intervals: false } });
      const app = await boot([Job], { backend, instance: 'worker', schedule: { cronJobs: false } });
      await until(() => app.get(Job).ticks.length >= 2);
      expect(elected).toEqual(['worker']);
    });
  });
});

describe('a job that is stopped while the application runs', () => {
  it.each([
    ['stop()', (registry: SchedulerRegistry) => void registry.getCronJob('job').stop()],
    ['deleteCronJob()', (registry: SchedulerRegistry) => registry.deleteCronJob('job')],
  ])('by %s is left to a process that fires it', async (_, stop) => {
    const backend = new MemoryBackend();
    const [first, second] = [jobWith(led), jobWith(led)];
    const one = await boot([first], { backend });
    await until(() => one.get(first).ticks.length > 0);
    const two = await boot([second], { backend, instance: 'two' });
    stop(one.get(SchedulerRegistry));
    await until(() => two.get(second).ticks.length > 0);
  });

  it('campaigns in an election that was joined during a stop too short to be noticed', async () => {
    const job = jobWith(led);
    const app = await boot([job]);
    const elections = app.get(LeaderElection);
    const left = elections.join('boss');
    await until(() => left.isLeader());
    void cronJobOf(app).stop();
    await left.leave();
    const candidate = elections.join('boss');
    cronJobOf(app).start();
    await until(() => candidate.isLeader());
  });

  it('stays in an election that something else has joined', async () => {
    const job = jobWith(led);
    const app = await boot([job]);
    const candidate = app.get(LeaderElection).join('boss');
    await until(() => candidate.isLeader());
    await cronJobOf(app).stop();
    const checks = countChecks(cronJobOf(app));
    await until(() => checks() >= 2);
    expect(candidate.isLeader()).toBe(true);
  });

  describe('in a process that has joined the election itself', () => {
    /** The first process leads. The second waits when its job is stopped, and the first process ends. */
    async function stoppedInLine() {
      const backend = new MemoryBackend();
      const jobs = [jobWith(led), jobWith(led)];
      const one = await boot([jobs[0]!], { backend, instance: 'one' });
      await until(() => one.get(jobs[0]!).ticks.length > 0);
      const two = await boot([bossWith(), jobs[1]!], { backend, instance: 'two' });
      await until(() => one.get(jobs[0]!).ticks.length > 1);
      await cronJobOf(two).stop();
      await one.close();
      return { backend, two };
    }

    it('leaves the election to a process that fires the job', async () => {
      await electedDuring(async (elected) => {
        const { backend } = await stoppedInLine();
        const worker = jobWith(led);
        const three = await boot([worker], { backend, instance: 'three' });
        await until(() => three.get(worker).ticks.length > 0);
        expect(elected).toEqual(['one', 'three']);
      });
    });

    it('lets it lead once the job is started again', async () => {
      const { two } = await stoppedInLine();
      const candidate = two.get(LeaderElection).join('boss');
      expect(candidate.isLeader()).toBe(false);
      cronJobOf(two).start();
      await until(() => candidate.isLeader());
    });
  });

  it('logs a warning in a process that stays leader, once for each stop', async () => {
    const warnings: string[] = [];
    const job = jobWith(led);
    const app = await boot([bossWith(), job], { warnings });
    const untilFired = async () => {
      const before = app.get(job).ticks.length;
      await until(() => app.get(job).ticks.length >= before + 3);
    };
    await untilFired();
    expect(warnings).toEqual([]);
    await cronJobOf(app).stop();
    await until(() => warnings.length === 1);
    cronJobOf(app).start();
    await untilFired();
    await cronJobOf(app).stop();
    await until(() => warnings.length === 2);
    const checks = countChecks(cronJobOf(app));
    await until(() => checks() >= 2);
    const runsNowhere = /leads "boss", but .* fire the job 'job'.* runs nowhere now/;
    expect(warnings).toEqual([expect.stringMatching(runsNowhere), expect.stringMatching(runsNowhere)]);
  });

  it('logs no warning if the process leaves the election because of it', async () => {
    const warnings: string[] = [];
    const job = jobWith(led);
    const app = await boot([job], { warnings });
    await until(() => app.get(job).ticks.length > 0);
    await cronJobOf(app).stop();
    const checks = countChecks(cronJobOf(app));
    await until(() => checks() >= 2);
    expect(warnings).toEqual([]);
  });

  it('runs missed ticks when it is started again', async () => {
    const { clock, backend } = await missedYear();
    const job = jobWith({ onMissed: 'once' }, yearly[0], { ...yearly[1], disabled: true });
    const app = await boot([job], { backend });
    await clock.advance(0);
    expect(app.get(job).ticks).toEqual([]);
    app.get(SchedulerRegistry).getCronJob('job').start();
    await until(async () => {
      await clock.advance(0);
      return app.get(job).ticks.length === 1;
    });
  });

  it('joins its election when it is started', async () => {
    const job = jobWith(led, EACH_SECOND, { disabled: true });
    const app = await boot([job]);
    app.get(SchedulerRegistry).getCronJob('job').start();
    await until(() => app.get(job).ticks.length > 0);
  });
});

it('a job for one date that has fired stays in its election', async () => {
  const job = jobWith(led, new Date(Date.now() + 1_500));
  const app = await boot([job]);
  const cronJob = app.get(SchedulerRegistry).getCronJob('job');
  await until(() => app.get(job).ticks.length === 1);
  expect(cronJob.isActive).toBe(false);
});

describe('setTime()', () => {
  it('reschedules a guarded job, once in the cluster', async () => {
    const backend = new MemoryBackend();
    const jobs = [jobWith({}, '0 3 * * *'), jobWith({}, '0 3 * * *')];
    const apps = [await boot([jobs[0]!], { backend }), await boot([jobs[1]!], { backend })];
    for (const app of apps) app.get(SchedulerRegistry).getCronJob('job').setTime(new CronTime(EACH_SECOND));
    const ticks = () => apps.flatMap((app, index) => app.get(jobs[index]!).ticks.map(Number));
    await until(() => ticks().length >= 3);
    expect(new Set(ticks()).size).toBe(ticks().length);
    expect(ticks().every((tick) => tick % 1_000 === 0)).toBe(true);
    const { nextTick } = await apps[0]!.get(CronRuns).history('job');
    expect(nextTick!.getTime() - Date.now()).toBeLessThan(HOUR_MS);
  });

  it.each(['setTime()', 'another CronJob'])(
    'reschedules a job of which several ScheduleModules have timers: %s',
    async (how) => {
      const Job = jobWith({}, '0 3 * * *');
      const schedule = ScheduleModule.forRoot();
      const app = await boot([Job], { imports: [schedule] });
      const registry = app.get(SchedulerRegistry);
      const cronTime = new CronTime(EACH_SECOND);
      if (how === 'setTime()') {
        registry.getCronJob('job').setTime(cronTime);
      } else {
        registry.deleteCronJob('job');
        const onTick = () => app.get<{ job(): Promise<void> }>(Job).job();
        registry.addCronJob('job', CronJob.from({ cronTime: EACH_SECOND, onTick, start: true }));
      }
      await until(() => app.get(Job).ticks.length >= 2);
      const { nextTick } = await app.get(CronRuns).history('job');
      expect(nextTick!.getTime() - Date.now()).toBeLessThan(HOUR_MS);
    },
  );

  it('makes what was due before it no missed tick of the new schedule, as soon as it was called', async () => {
    const backend = new MemoryBackend();
    const Job = jobWith({ onMissed: 'once' }, EACH_SECOND);
    const app = await boot([Job], { backend });
    await until(() => app.get(Job).ticks.length >= 1);
    app.get(SchedulerRegistry).getCronJob('job').setTime(new CronTime('0 3 * * *'));
    const setAtMs = Date.now();
    const ticks = () => app.get(Job).ticks.map(Number);
    // The newest tick is a time at which nothing has run.
    await until(async () => {
      const { claimed } = await backend.readTicks(jobStoreKey('lock', 'job'));
      return claimed?.attempt === 0 && !ticks().includes(claimed.tickMs);
    });
    expect(ticks().every((tick) => tick <= setAtMs)).toBe(true);
  });

  it('reschedules a job without a name, and back again', async () => {
    @Injectable()
    class Job extends Recording {
      @SingletonCron({ key: 'job' })
      @Cron('0 3 * * *')
      async job({ tick }: { tick: Date }): Promise<void> {
        this.ticks.push(tick);
      }
    }
    const app = await boot([Job]);
    const [cronJob] = [...app.get(SchedulerRegistry).getCronJobs().values()];
    cronJob!.setTime(new CronTime(new Date(Date.now() + 1_200)));
    await until(() => app.get(Job).ticks.length === 1);
    cronJob!.setTime(new CronTime('0 3 * * *', 'UTC'));
    const { nextTick } = await app.get(CronRuns).history('job');
    expect(nextTick!.toISOString()).toContain('T03:00:00.000Z');
  });
});
