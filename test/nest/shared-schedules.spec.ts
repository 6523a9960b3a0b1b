import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { afterEach, describe, expect, it } from 'vitest';
import { Controller, Injectable, type Provider, type Type, applyDecorators } from '@nestjs/common';
import { Cron, Interval, ScheduleModule, SchedulerRegistry } from '@nestjs/schedule';
import { Test, type TestingModule } from '@nestjs/testing';
import { CronTime } from 'cron';
import { MemoryBackend } from '../../lib/backends/memory/index.js';
import {
  CronRuns,
  DistributedLockModule,
  type DistributedLockModuleOptions,
  type LockEventMessage,
  SingletonCron,
} from '../../lib/index.js';
import { until } from '../support/until.js';

const NEW_YEAR = '0 0 1 1 *';
const EACH_SECOND = '* * * * * *';

abstract class Sync {
  runs = 0;

  @SingletonCron(EACH_SECOND)
  sync(): void {
    this.runs += 1;
  }
}
@Injectable()
class CustomerSync extends Sync {}
@Injectable()
class OrderSync extends Sync {}

abstract class Yearly {
  runs = 0;

  @SingletonCron(NEW_YEAR)
  sync(): void {
    this.runs += 1;
  }
}
@Controller()
class YearlyController extends Yearly {}
@Injectable()
class YearlyCustomers extends Yearly {}
@Injectable()
class YearlyOrders extends Yearly {}

const newYear = applyDecorators(Cron(NEW_YEAR));

@Injectable()
class Unguarded {
  @newYear
  sync(): void {}
}

@Injectable()
class TwoModules {
  readonly runs: string[] = [];

  @SingletonCron({ key: 'first' })
  @newYear
  first(): void {
    this.runs.push('first');
  }

  @SingletonCron({ key: 'second', service: 'second' })
  @newYear
  second(): void {
    this.runs.push('second');
  }

  @SingletonCron({ key: 'third', service: 'second' })
  @newYear
  third(): void {
    this.runs.push('third');
  }
}

const apps: TestingModule[] = [];
afterEach(async () => {
  for (const app of apps.splice(0)) await app.close();
});

interface Boot {
  readonly controllers?: Type[];
  readonly jobs?: DistributedLockModuleOptions['jobs'];
  readonly jobsOfSecond?: DistributedLockModuleOptions['jobs'];
}

async function boot(
  providers: Provider[],
  { controllers = [], jobs = {}, jobsOfSecond = {} }: Boot = {},
): Promise<TestingModule> {
  const app = await Test.createTestingModule({
    imports: [
      DistributedLockModule.forRoot({ backend: new MemoryBackend(), jobs }),
      DistributedLockModule.forRoot({ name: 'second', backend: new MemoryBackend(), jobs: jobsOfSecond }),
      ScheduleModule.forRoot(),
    ],
    controllers,
    providers,
  }).compile();
  apps.push(app);
  return app.init();
}

/** The jobs of the scheduler, in the order of their methods. */
const cronJobsOf = (app: TestingModule) => [...app.get(SchedulerRegistry).getCronJobs().values()];

describe('setTime() of a job with the schedule of another one', () => {
  it.each<[number, Type<Sync>, Type<Sync>]>([
    [0, CustomerSync, OrderSync],
    [1, OrderSync, CustomerSync],
  ])('changes the ticks of that job only: number %d', async (index, changed, other) => {
    const app = await boot([CustomerSync, OrderSync]);
    cronJobsOf(app)[index]!.setTime(new CronTime(NEW_YEAR));
    await until(() => app.get(other).runs >= 2);
    const nextTickOf = async ({ name }: Type) => (await app.get(CronRuns).history(`${name}.sync`)).nextTick;
    const newYearsDay = cronJobsOf(app)[index]!.nextDate().toJSDate();
    expect(await nextTickOf(changed)).toEqual(newYearsDay);
    expect(await nextTickOf(other)).not.toEqual(newYearsDay);
  });
});

describe('a job that is stopped leaves its election, although another job', () => {
  const eachSecond = applyDecorators(Cron(EACH_SECOND));

  @Injectable()
  class CronJobs {
    @SingletonCron({ key: 'a', leader: 'a' })
    @eachSecond
    a(): void {}

    @SingletonCron({ key: 'b', leader: 'b' })
    @eachSecond
    b(): void {}
  }

  @Injectable()
  class Intervals {
    @SingletonCron({ key: 'a', leader: 'a' })
    @Interval(50)
    a(): void {}

    @SingletonCron({ key: 'b', leader: 'b' })
    @Interval(50)
    b(): void {}
  }

  const stopCronJob = (app: TestingModule, index: number) => void cronJobsOf(app)[index]!.stop();
  const stopInterval = (app: TestingModule, index: number) => {
    const registry = app.get(SchedulerRegistry);
    registry.deleteInterval(registry.getIntervals()[index]!);
  };

  it.each([
    ['has its schedule', CronJobs, stopCronJob],
    ['has its interval', Intervals, stopInterval],
  ])('%s', async (_, jobs, stop) => {
    const leading = new Set<string>();
    const elected = (message: unknown) => leading.add((message as LockEventMessage<'elected'>).election);
    const revoked = (message: unknown) => leading.delete((message as LockEventMessage<'revoked'>).election);
    subscribe('nestjs-distributed-lock:elected', elected);
    subscribe('nestjs-distributed-lock:revoked', revoked);
    try {
      const app = await boot([jobs]);
      await until(() => leading.size === 2);
      stop(app, 1);
      await until(() => leading.size === 1);
      expect([...leading]).toEqual(['a']);
    } finally {
      unsubscribe('nestjs-distributed-lock:elected', elected);
      unsubscribe('nestjs-distributed-lock:revoked', revoked);
    }
  });
});

describe('jobs in the options of the module', () => {
  it.each<[Type<Yearly>]>([[YearlyController], [YearlyCustomers], [YearlyOrders]])(
    'change one of several classes that inherit a schedule: %j',
    async (changed) => {
      const app = await boot([Unguarded, YearlyCustomers, YearlyOrders], {
        controllers: [YearlyController],
        jobs: { [`${changed.name}.sync`]: { cronTime: EACH_SECOND } },
      });
      await until(() => app.get(changed).runs >= 2);
      const runs = [YearlyController, YearlyCustomers, YearlyOrders].map((each) => app.get(each).runs > 0);
      expect(runs.filter((hasRun) => hasRun)).toHaveLength(1);
      expect(cronJobsOf(app).filter(({ cronTime }) => cronTime.source === NEW_YEAR)).toHaveLength(3);
    },
  );

  it('stop all timers of an instance that is provided under two tokens', async () => {
    const alias = { provide: 'alias', useExisting: CustomerSync };
    const app = await boot([alias, CustomerSync, OrderSync], {
      jobs: { 'CustomerSync.sync': { disabled: true } },
    });
    await until(() => app.get(OrderSync).runs >= 2);
    expect(app.get(CustomerSync).runs).toBe(0);
    expect(cronJobsOf(app).map(({ isActive }) => isActive)).toEqual([false, false, true]);
  });

  it('change one of several methods with one decorator that belong to several modules', async () => {
    const app = await boot([Unguarded, TwoModules], {
      jobs: { first: { cronTime: '0 0 2 1 *' } },
      jobsOfSecond: { third: { cronTime: EACH_SECOND } },
    });
    await until(() => app.get(TwoModules).runs.length >= 2);
    expect(new Set(app.get(TwoModules).runs)).toEqual(new Set(['third']));
    const expressions = cronJobsOf(app).map(({ cronTime }) => cronTime.source);
    expect(expressions).toEqual([NEW_YEAR, '0 0 2 1 *', NEW_YEAR, EACH_SECOND]);
  });
});
