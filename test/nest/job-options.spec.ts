import { afterEach, describe, expect, it } from 'vitest';
import { Inject, Injectable, Module, type Type } from '@nestjs/common';
import { Cron, Interval, ScheduleModule, SchedulerRegistry, Timeout } from '@nestjs/schedule';
import { Test, type TestingModule } from '@nestjs/testing';
import { memoryBackend } from '../../lib/backends/memory/index.js';
import {
  type CronRun,
  CronRuns,
  DistributedLockModule,
  type DistributedLockModuleOptions,
  LockConfigError,
  LockService,
  SingletonCron,
  currentLock,
} from '../../lib/index.js';
import { until } from '../support/until.js';

type JobOptions = DistributedLockModuleOptions['jobs'];

const NEW_YEAR = '0 0 1 1 *';
const EVERY_SECOND = '* * * * * *';

@Injectable()
class Jobs {
  readonly runs: string[] = [];
  remainingMs = 0;

  @SingletonCron(NEW_YEAR, { key: 'rare' })
  rare(): void {
    this.runs.push('rare');
    this.remainingMs = currentLock()?.remainingMs() ?? 0;
  }

  @SingletonCron(EVERY_SECOND, { key: 'often' })
  often(): void {
    this.runs.push('often');
  }

  @Cron('30 12 * * *', { name: 'noon', utcOffset: 60 })
  @SingletonCron()
  noon(_run: CronRun): void {
    this.runs.push('noon');
  }

  @Interval(50)
  @SingletonCron({ key: 'interval' })
  interval(): void {
    this.runs.push('interval');
  }
}

@Injectable()
class Twice {
  runs = 0;

  @SingletonCron(NEW_YEAR, { key: 'twice' })
  run(): void {
    this.runs += 1;
  }
}

@Injectable()
class Recovered {
  @SingletonCron(NEW_YEAR, { key: 'retried', onDeadRun: 'retry', maxAttempts: 5 })
  retried(): void {}

  @SingletonCron(NEW_YEAR, { key: 'missed', onMissed: 'once', missedWithinMs: 60_000 })
  missed(): void {}

  @SingletonCron({ key: 'deployed', deployKey: 'v1' })
  @Timeout(60_000)
  deployed(): void {}
}

const apps: TestingModule[] = [];
afterEach(async () => {
  for (const app of apps.splice(0)) await app.close();
});

const SETTINGS = Symbol('settings');

@Module({})
class Config {}

async function boot(jobs: JobOptions, providers: Type[] = [Jobs]): Promise<TestingModule> {
  const app = await Test.createTestingModule({
    imports: [
      DistributedLockModule.forRootAsync({
        imports: [
          { module: Config, providers: [{ provide: SETTINGS, useValue: jobs }], exports: [SETTINGS] },
        ],
        inject: [SETTINGS],
        useFactory: (settings: JobOptions) => ({ backend: memoryBackend(), jobs: settings }),
      }),
      ScheduleModule.forRoot(),
    ],
    providers,
  }).compile();
  apps.push(app);
  return app.init();
}

const nextTickOf = async (app: TestingModule, key: string) => (await app.get(CronRuns).history(key)).nextTick;

describe('jobs in the options of the module', () => {
  it('a cron expression replaces that of the decorator', async () => {
    const jobs = (await boot({ rare: { cronTime: EVERY_SECOND } })).get(Jobs);
    await until(() => jobs.runs.includes('rare'));
  });

  it('a time zone replaces that of the decorator, also its offset', async () => {
    const app = await boot({ noon: { timeZone: 'Asia/Tokyo' }, rare: { timeZone: 'Asia/Tokyo' } });
    expect((await nextTickOf(app, 'noon'))?.toISOString()).toMatch(/T03:30:00/);
    expect((await nextTickOf(app, 'rare'))?.toISOString()).toMatch(/-12-31T15:00:00/);
    expect(app.get(SchedulerRegistry).getCronJob('noon').nextDate().toUTC().hour).toBe(3);
  });

  it('a disabled job does not run, whatever schedules it', async () => {
    const app = await boot({
      often: { disabled: true },
      interval: { disabled: true },
      rare: { cronTime: EVERY_SECOND },
    });
    const jobs = app.get(Jobs);
    await until(() => jobs.runs.filter((run) => run === 'rare').length === 2);
    expect(jobs.runs).not.toContain('often');
    expect(jobs.runs).not.toContain('interval');
  });

  it('the other options replace those of the decorator', async () => {
    const jobs = (await boot({ rare: { cronTime: EVERY_SECOND, leaseMs: 5_000 } })).get(Jobs);
    await until(() => jobs.runs.includes('rare'));
    expect(jobs.remainingMs).toBeLessThanOrEqual(5_000);
    expect(jobs.remainingMs).toBeGreaterThan(0);
  });

  it.each<[string, JobOptions]>([
    ['retries', { retried: { onDeadRun: 'skip' } }],
    ['missed ticks', { missed: { onMissed: 'skip' } }],
  ])('%s can be switched off, although the decorator has options for them', async (_, jobs) => {
    const app = await boot(jobs, [Recovered]);
    expect(app.get(CronRuns)).toBeInstanceOf(CronRuns);
  });

  it('a call of a disabled cron job claims a tick, that of another disabled job runs nothing', async () => {
    const jobs = (await boot({ often: { disabled: true }, interval: { disabled: true } })).get(Jobs);
    jobs.interval();
    jobs.often();
    await until(() => jobs.runs.length > 0);
    expect(jobs.runs).toEqual(['often']);
  });

  it('an option without a value leaves that of the decorator', async () => {
    const app = await boot({ often: { cronTime: undefined, timeZone: undefined, disabled: undefined } });
    await until(() => app.get(Jobs).runs.includes('often'));
  });

  it('a class that is provided twice has one job', async () => {
    const again = { provide: 'again', useClass: Twice } as never;
    const app = await boot({ twice: { cronTime: EVERY_SECOND } }, [Twice, again]);
    const instances = [app.get(Twice), app.get<Twice>('again')];
    await until(() => instances.some(({ runs }) => runs > 1));
  });

  it('two applications in one process have each their own', async () => {
    const early = await boot({ rare: { cronTime: '0 0 2 1 *' } });
    const late = await boot({ rare: { cronTime: '0 0 3 1 *' } });
    const usual = await boot({});
    const days = await Promise.all([early, late, usual].map((app) => nextTickOf(app, 'rare')));
    expect(days.map((day) => day?.getDate())).toEqual([2, 3, 1]);
  });
});

describe('jobs that cannot work fail the boot', () => {
  @Injectable()
  class Other {
    constructor(@Inject(LockService) readonly locks: LockService) {}
  }

  it.each<[string, unknown, RegExp]>([
    ['no object', 'nightly', /expected jobs to be an object/],
    ['a list', [], /expected jobs to be an object/],
    ['an entry that is no object', { rare: true }, /expected jobs\['rare'\] to be an object/],
    ['an unknown option', { rare: { cron: '* * * * *' } }, /jobs\['rare'\] has no option 'cron'/],
    ['an unknown job', { nightly: { disabled: true } }, /got 'nightly', but it has 'rare', 'often'/],
    ['the name of a property of all objects', { constructor: { disabled: true } }, /got 'constructor'/],
    ['a text as a switch', { rare: { disabled: 'false' } }, /jobs\['rare'\]\.disabled to be true or false/],
    ['a wrong expression', { rare: { cronTime: 'daily' } }, /Jobs\.rare.*got .*daily/],
    ['an expression without a date', { rare: { cronTime: '0 0 30 2 *' } }, /fires at some time/],
    ['an unknown time zone', { rare: { timeZone: 'Mars' } }, /Jobs\.rare.*Mars/],
    ['an empty expression', { rare: { cronTime: '' } }, /jobs\['rare'\]\.cronTime/],
    ['an expression for an interval', { interval: { cronTime: EVERY_SECOND } }, /has no cron expression/],
    ['a wrong lease', { rare: { leaseMs: 1 } }, /jobs\['rare'\].*leaseMs/],
    [
      'options that contradict those of the decorator',
      { rare: { maxAttempts: 3 } },
      /onDeadRun: 'retry' beside/,
    ],
    [
      'retries that are switched off, with their number',
      { retried: { onDeadRun: 'skip', maxAttempts: 3 } },
      /'retried'.*onDeadRun: 'retry' beside maxAttempts/,
    ],
    [
      'missed ticks that are switched off, with their age',
      { missed: { onMissed: 'skip', missedWithinMs: 1_000 } },
      /'missed'.*onMissed: 'once' beside missedWithinMs/,
    ],
    [
      'a leader for a job of a deploy',
      { deployed: { leader: 'boss' } },
      /expected no leader beside deployKey/,
    ],
  ])('%s', async (_, jobs, message) => {
    const booting = boot(jobs as JobOptions, [Jobs, Recovered]);
    await expect(booting).rejects.toThrow(LockConfigError);
    await expect(booting).rejects.toThrow(message);
  });

  it('an entry of an application without jobs', async () => {
    await expect(boot({ rare: {} }, [Other])).rejects.toThrow(/got 'rare', but it has none/);
  });
});
