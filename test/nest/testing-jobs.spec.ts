import { type Server, createServer } from 'node:net';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { Inject, Injectable, Module } from '@nestjs/common';
import { Cron, Interval, ScheduleModule, SchedulerRegistry } from '@nestjs/schedule';
import { Test } from '@nestjs/testing';
import { memoryBackend } from '../../lib/backends/memory/index.js';
import { redisBackend } from '../../lib/backends/redis/index.js';
import {
  type CronRun,
  CronRuns,
  DistributedLockModule,
  LockConfigError,
  LockService,
  LockUnavailableError,
  Locked,
  SingletonCron,
  getLockServiceToken,
} from '../../lib/index.js';
import { LockControl, LockTestingModule, SettableClock } from '../../lib/testing/index.js';

@Injectable()
class Jobs {
  readonly ticks: Date[] = [];
  leave: Promise<void> | undefined;
  failure: Error | undefined;

  @SingletonCron('0 3 * * 1', { key: 'weekly', timeZone: 'UTC', jitterMs: 60_000 })
  async weekly({ tick }: CronRun): Promise<string> {
    this.ticks.push(tick);
    await this.leave;
    if (this.failure) throw this.failure;
    return 'reported';
  }

  @SingletonCron({ key: 'led', leader: 'nobody', onMissed: 'once' })
  @Interval(60_000)
  async led(): Promise<string> {
    return 'led';
  }

  @SingletonCron({ key: 'nightly' })
  @Cron('0 0 * * *', { disabled: true })
  @Locked('nightly')
  async nightly({ attempt }: CronRun): Promise<number> {
    return attempt;
  }

  @Locked('order:{0}')
  async ship(order: string): Promise<string> {
    return `${order} shipped`;
  }
}

@Module({})
class OwnModule {}

async function boot(clock?: SettableClock) {
  const app = await Test.createTestingModule({
    imports: [LockTestingModule.forRoot(clock && { clock })],
    providers: [Jobs],
  }).compile();
  await app.init();
  return { app, jobs: app.get(Jobs), control: app.get(LockControl) };
}

/** Makes the `CronRun` parameter optional, because a test calls the method without one. */
const byHand = (jobs: Jobs) => (jobs.weekly as () => Promise<string>).call(jobs);

describe('a job under LockTestingModule, without ScheduleModule,', () => {
  it.each([new SettableClock(Date.UTC(2026, 0, 7)), undefined])('runs at each call (%#)', async (clock) => {
    const { app, jobs } = await boot(clock);
    expect([await byHand(jobs), await byHand(jobs)]).toEqual(['reported', 'reported']);
    expect(jobs.ticks[0]!.getUTCHours()).toBe(3);
    if (clock) expect(jobs.ticks).toEqual(Array(2).fill(new Date('2026-01-05T03:00:00Z')));
    await app.close();
  });

  it('is fired through all decorators, whichever process leads', async () => {
    const { app, control } = await boot();
    expect(await control.fire('weekly')).toBe('reported');
    expect(await control.fire('weekly')).toBe('reported');
    expect(await control.fire('led')).toBe('led');
    expect(await control.fire('nightly')).toBe(1);
    await app.close();
  });

  it('is fired once for a tick, in any order of ticks', async () => {
    const { app, jobs, control } = await boot();
    const [later, earlier] = [new Date('2030-06-03T03:00:00Z'), new Date('2020-06-01T03:00:00Z')];
    expect(await control.fire('weekly', { tick: later })).toBe('reported');
    expect(await control.fire('weekly', { tick: earlier })).toBe('reported');
    expect(await control.fire('weekly', { tick: earlier })).toBeUndefined();
    expect(jobs.ticks).toEqual([later, earlier]);
    const tick = new Date('2030-06-10T03:00:00Z');
    const atOnce = await Promise.all([control.fire('weekly', { tick }), control.fire('weekly', { tick })]);
    expect(atOnce).toEqual(['reported', undefined]);
    await app.close();
  });

  it('is skipped while a run is in progress or the store is disconnected', async () => {
    const { app, jobs, control } = await boot();
    let end = () => {};
    jobs.leave = new Promise((resolve) => (end = resolve));
    const first = control.fire('weekly');
    while (jobs.ticks.length === 0) await new Promise(setImmediate);
    expect(await control.fire('weekly')).toBeUndefined();
    expect(await byHand(jobs)).toBeUndefined();
    end();
    expect(await first).toBe('reported');
    control.disconnect();
    expect(await control.fire('weekly', { tick: new Date(0) })).toBeUndefined();
    control.reconnect();
    expect(await control.fire('weekly', { tick: new Date(0) })).toBe('reported');
    await app.close();
  });

  it('is skipped while it is paused, fired or called', async () => {
    const { app, jobs, control } = await boot();
    const cronRuns = app.get(CronRuns);
    await cronRuns.pause('weekly');
    expect(await control.fire('weekly')).toBeUndefined();
    expect(await control.fire('weekly', { tick: new Date(0) })).toBeUndefined();
    expect(await byHand(jobs)).toBeUndefined();
    expect(await control.fire('led')).toBe('led');
    await cronRuns.resume('weekly');
    expect(await control.fire('weekly', { tick: new Date(0) })).toBe('reported');
    await app.close();
  });

  it('rejects with the error of the job, and may be fired again', async () => {
    const { app, jobs, control } = await boot();
    jobs.failure = new Error('no paper');
    await expect(control.fire('weekly')).rejects.toBe(jobs.failure);
    await expect(byHand(jobs)).rejects.toBe(jobs.failure);
    jobs.failure = undefined;
    expect(await control.fire('weekly')).toBe('reported');
    await app.close();
  });

  it('is not fired with a wrong key or a wrong tick', async () => {
    const { app, control } = await boot();
    await expect(control.fire('daily')).rejects.toThrow(/'daily'.*weekly, led, nightly/);
    await expect(control.fire('weekly', { tick: new Date('soon') })).rejects.toThrow(/valid Date/);
    await app.close();
  });

  it('throws an error that names the missing init()', async () => {
    const app = await Test.createTestingModule({
      imports: [LockTestingModule.forRoot()],
      providers: [Jobs, { provide: 'made', useFactory: () => new Jobs() }],
    }).compile();
    await expect(byHand(app.get(Jobs))).rejects.toThrow(/await app\.init\(\)/);
    expect(await app.get<Jobs>('made').ship('7')).toBe('7 shipped');
    await expect(app.get(LockControl).fire('weekly')).rejects.toThrow(/await app\.init\(\)/);
    await app.close();
  });
});

describe('overrideModule(DistributedLockModule)', () => {
  let server: Server;
  let dialled = 0;
  let url: string;

  beforeEach(async () => {
    dialled = 0;
    server = createServer((socket) => {
      dialled += 1;
      socket.destroy();
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    url = `redis://127.0.0.1:${(server.address() as { port: number }).port}`;
  });
  afterEach(() => new Promise((resolve) => server.close(resolve)));

  const factory = vi.fn(() => ({ backend: redisBackend({ url }), namespace: 'shop' }));
  const WAYS = {
    forRoot: () => [DistributedLockModule.forRoot({ backend: redisBackend({ url }), namespace: 'shop' })],
    'forRoot, not global': () => [
      DistributedLockModule.forRoot({ backend: redisBackend({ url }), isGlobal: false }),
    ],
    forRootAsync: () => [DistributedLockModule.forRootAsync({ useFactory: factory })],
    'two modules': () => [
      DistributedLockModule.forRoot({ backend: redisBackend({ url }) }),
      DistributedLockModule.forRootAsync({ name: 'reports', useFactory: factory }),
    ],
    'a named module': () => [
      DistributedLockModule.forRoot({ backend: redisBackend({ url }) }),
      DistributedLockModule.forRoot({ name: 'reports', backend: redisBackend({ url }), isGlobal: false }),
    ],
  };

  const appModule = (imports: ReturnType<(typeof WAYS)['forRoot']>) => {
    @Module({ imports, providers: [Jobs] })
    class AppModule {}
    return AppModule;
  };

  it.each(Object.entries(WAYS))('replaces %s', async (_, modules) => {
    const AppModule = appModule(modules());
    const app = await Test.createTestingModule({ imports: [AppModule] })
      .overrideModule(DistributedLockModule)
      .useModule(LockTestingModule.forRoot())
      .compile();
    await app.init();
    const [jobs, control] = [app.get(Jobs), app.get(LockControl)];
    expect(await jobs.ship('7')).toBe('7 shipped');
    expect(await byHand(jobs)).toBe('reported');
    expect(await control.fire('weekly')).toBe('reported');
    const lock = await app.get(LockService).acquire('order:8');
    await control.lose('order:8');
    expect(lock.signal.aborted).toBe(true);
    await app.close();
    expect(dialled).toBe(0);
    expect(factory).not.toHaveBeenCalled();
  });

  it('makes a module with a name use the same store', async () => {
    @Injectable()
    class Reports {
      constructor(@Inject(getLockServiceToken('reports')) readonly locks: LockService) {}

      @SingletonCron({ key: 'report', service: 'reports' })
      @Interval(60_000)
      async report(): Promise<string> {
        return 'reported';
      }
    }
    @Module({ imports: WAYS['two modules'](), providers: [Jobs, Reports] })
    class AppModule {}
    const app = await Test.createTestingModule({ imports: [AppModule] })
      .overrideModule(DistributedLockModule)
      .useModule(LockTestingModule.forRoot())
      .compile();
    await app.init();
    const [{ locks }, control] = [app.get(Reports), app.get(LockControl)];
    expect(await control.fire('report')).toBe('reported');
    const lock = await locks.acquire('key');
    await control.lose('key');
    expect(lock.signal.aborted).toBe(true);
    control.disconnect();
    await expect(locks.acquire('key')).rejects.toThrow(LockUnavailableError);
    control.reconnect();
    await app.close();
    expect(dialled).toBe(0);
  });

  it('applies options of jobs to the module that has the job, and to the timers of ScheduleModule', async () => {
    @Module({
      imports: [
        ScheduleModule.forRoot(),
        DistributedLockModule.forRoot({ backend: memoryBackend() }),
        DistributedLockModule.forRoot({ name: 'local', backend: memoryBackend() }),
      ],
      providers: [Jobs],
    })
    class TwoModules {}
    const app = await Test.createTestingModule({ imports: [TwoModules] })
      .overrideModule(DistributedLockModule)
      .useModule(LockTestingModule.forRoot({ jobs: { weekly: { cronTime: '0 4 * * 2' } } }))
      .compile();
    await app.init();
    const times = [...app.get(SchedulerRegistry).getCronJobs().values()].map(
      ({ cronTime }) => cronTime.source,
    );
    expect(times).toContain('0 4 * * 2');
    expect(times).not.toContain('0 3 * * 1');
    await app.close();
  });

  it('is not replaced by an import of LockTestingModule beside a module with the same name', async () => {
    for (const name of [undefined, 'x']) {
      const app = await Test.createTestingModule({
        imports: [
          DistributedLockModule.forRoot({ backend: memoryBackend(), ...(name && { name }) }),
          LockTestingModule.forRoot(name ? { name } : {}),
        ],
      }).compile();
      await expect(app.init()).rejects.toThrow(LockConfigError);
      await app.close();
    }
  });

  it('is not replaced by an import of LockTestingModule with another name', async () => {
    const backend = memoryBackend();
    const app = await Test.createTestingModule({
      imports: [DistributedLockModule.forRoot({ backend }), LockTestingModule.forRoot({ name: 'x' })],
    }).compile();
    await app.init();
    const [real, test] = [app.get(LockService), app.get<LockService>(getLockServiceToken('x'))];
    await real.acquire('key');
    await test.acquire('key');
    app.get(LockControl).disconnect();
    await expect(test.acquire('other')).rejects.toThrow(LockUnavailableError);
    await (await real.acquire('other')).release();
    await app.close();
  });

  it('or an import logs an error if NODE_ENV is production', async () => {
    const { NODE_ENV } = process.env;
    const errors: string[] = [];
    const ignored = () => undefined;
    const logger = { log: ignored, warn: ignored, error: (text: string) => void errors.push(text) };
    try {
      for (const env of ['test', 'production']) {
        process.env['NODE_ENV'] = env;
        const app = await Test.createTestingModule({ imports: [LockTestingModule.forRoot()] })
          .setLogger(logger)
          .compile();
        await app.init();
        await app.close();
        if (env === 'test') expect(errors).toEqual([]);
      }
    } finally {
      process.env['NODE_ENV'] = NODE_ENV;
    }
    expect(errors).toEqual([expect.stringMatching(/in this process only.*jobs run in every replica/)]);
  });

  it.each([
    ['LockTestingModule without forRoot()', LockTestingModule, /Add \.forRoot\(\)/],
    ['a module of your own', OwnModule, /expected useModule\(LockTestingModule\.forRoot\(\)\)/],
  ])('refuses %s, so that no connection is opened', async (_, replacement, message) => {
    const compiled = Test.createTestingModule({ imports: [appModule(WAYS.forRoot())] })
      .overrideModule(DistributedLockModule)
      .useModule(replacement)
      .compile();
    await expect(compiled).rejects.toThrow(message);
    expect(dialled).toBe(0);
  });
});
