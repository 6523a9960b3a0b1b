import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { afterEach, describe, expect, it } from 'vitest';
import { type DynamicModule, Inject, Injectable, Module, Scope, type Type, mixin } from '@nestjs/common';
import { Cron, Interval, ScheduleModule, Timeout } from '@nestjs/schedule';
import { Test, type TestingModule } from '@nestjs/testing';
import { MemoryBackend } from '../../lib/backends/memory/index.js';
import {
  type CronRun,
  CronRuns,
  DistributedLockModule,
  type GuardedTick,
  LeaderOnly,
  LockConfigError,
  type LockEventMessage,
  LockService,
  SingletonCron,
  currentLock,
} from '../../lib/index.js';
import { Gate } from '../support/gate.js';
import { until } from '../support/until.js';

const EACH_SECOND = '* * * * * *';

abstract class Recording {
  readonly runs: CronRun[] = [];
  get ticks(): number[] {
    return this.runs.map(({ tick }) => tick.getTime());
  }
}

@Injectable()
class Above extends Recording {
  @SingletonCron({ key: 'job' })
  @Cron(EACH_SECOND)
  async job(run: CronRun): Promise<void> {
    this.runs.push(run);
  }
}

@Injectable()
class Below extends Recording {
  @Cron(EACH_SECOND)
  @SingletonCron({ key: 'job' })
  async job(run: CronRun): Promise<void> {
    this.runs.push(run);
  }
}

@Injectable()
class Shorthand extends Recording {
  @SingletonCron(EACH_SECOND, { key: 'job', timeZone: 'Europe/Berlin' })
  async job(run: CronRun): Promise<void> {
    this.runs.push(run);
  }
}

@Injectable()
class Short extends Recording {
  @SingletonCron({ key: 'job' })
  @Interval(100)
  async job(run: CronRun): Promise<void> {
    this.runs.push(run);
  }
}

const closing: TestingModule[] = [];
afterEach(async () => {
  for (const app of closing.splice(0)) await app.close();
});

async function boot(
  providers: Type[],
  { backend = new MemoryBackend(), schedulers = 1 }: { backend?: MemoryBackend; schedulers?: number } = {},
): Promise<TestingModule> {
  const app = await Test.createTestingModule({
    imports: [
      DistributedLockModule.forRoot({ backend }),
      ...Array.from({ length: schedulers }, () => ScheduleModule.forRoot()),
    ],
    providers,
  })
    .setLogger({ log: () => undefined, warn: () => undefined, error: () => undefined })
    .compile();
  closing.push(app);
  return app.init();
}

const distinct = (values: readonly number[]) => new Set(values).size;

describe('@SingletonCron', () => {
  it.each([
    ['above @Cron', Above],
    ['below @Cron', Below],
    ['with an expression of its own', Shorthand],
  ])('%s runs each tick once in two replicas', async (_, Job) => {
    const backend = new MemoryBackend();
    const [one, two] = [await boot([Job], { backend }), await boot([Job], { backend })];
    const runs = () => [...one.get<Recording>(Job).ticks, ...two.get<Recording>(Job).ticks];
    await until(() => runs().length >= 3);
    expect(distinct(runs())).toBe(runs().length);
    expect(runs().every((tick) => tick % 1_000 === 0)).toBe(true);
  });

  it('guards an @Interval', async () => {
    const backend = new MemoryBackend();
    const [one, two] = [await boot([Short], { backend }), await boot([Short], { backend })];
    const runs = () => [...one.get(Short).ticks, ...two.get(Short).ticks];
    await until(() => runs().length >= 20);
    expect(distinct(runs())).toBe(runs().length);
    expect(runs().every((tick) => tick % 100 === 0)).toBe(true);
  });

  it('runs once although ScheduleModule.forRoot() is imported twice', async () => {
    const app = await boot([Short], { schedulers: 2 });
    const { ticks } = app.get(Short);
    await until(() => app.get(Short).runs.length >= 10);
    expect(distinct(ticks)).toBe(ticks.length);
  });

  it('runs once although the class is provided twice', async () => {
    const backend = new MemoryBackend();
    const app = await boot([Short, { provide: 'twin', useClass: Short } as never], { backend });
    const runs = () => [...app.get(Short).ticks, ...app.get<Short>('twin').ticks];
    await until(() => runs().length >= 10);
    expect(distinct(runs())).toBe(runs().length);
  });

  it.each([
    ['warns once, naming the key, of a dynamic module that is registered twice', ['eu', 'us', 'asia'], 1],
    ['does not warn of one that is imported twice', ['eu', 'eu'], 0],
  ])('%s', async (_, regions, count) => {
    @Injectable()
    class Importer {
      constructor(@Inject('REGION') readonly region: string) {}
      @SingletonCron('0 0 * * *')
      async run(): Promise<void> {}
    }
    @Module({ exports: [Importer] })
    class ImporterModule {
      static register(region: string): DynamicModule {
        return { module: ImporterModule, providers: [{ provide: 'REGION', useValue: region }, Importer] };
      }
    }
    const warned: string[] = [];
    const modules = new Map(regions.map((region) => [region, ImporterModule.register(region)]));
    const importing = regions.map((region) => {
      @Module({ imports: [modules.get(region)!] })
      class Importing {}
      return Importing;
    });
    const app = await Test.createTestingModule({
      imports: [
        DistributedLockModule.forRoot({ backend: new MemoryBackend() }),
        ScheduleModule.forRoot(),
        ...importing,
      ],
      providers: [
        { provide: 'alias', useExisting: 'aliased' },
        { provide: 'aliased', useValue: {} },
      ],
    })
      .setLogger({
        log: () => undefined,
        warn: (text: string) => void warned.push(text),
        error: () => undefined,
      })
      .compile();
    closing.push(app);
    await app.init();
    const ofJobs = warned.filter((text) => text.includes("'Importer.run' is provided by several instances"));
    expect(ofJobs).toHaveLength(count);
  });

  it('passes the tick, fencing token and signal to the run', async () => {
    const app = await boot([Short]);
    await until(() => app.get(Short).runs.length >= 2);
    const [first, second] = app.get(Short).runs;
    expect(first).toMatchObject({ attempt: 1, tick: expect.any(Date), fencingToken: expect.any(BigInt) });
    expect(first!.signal.aborted).toBe(false);
    expect(second!.fencingToken > first!.fencingToken).toBe(true);
  });

  it('does not start a tick while an earlier run is in progress, and reports why', async () => {
    @Injectable()
    class Slow {
      readonly gate = new Gate();
      running = 0;
      most = 0;
      runs = 0;

      @SingletonCron()
      @Interval(50)
      async job(): Promise<void> {
        this.runs += 1;
        this.running += 1;
        this.most = Math.max(this.most, this.running);
        expect(currentLock()!.key).toBe('Slow.job');
        await this.gate.passed;
        this.running -= 1;
      }
    }
    const skipped: LockEventMessage<'tick-skipped'>[] = [];
    const listen = (message: unknown) => skipped.push(message as LockEventMessage<'tick-skipped'>);
    subscribe('nestjs-distributed-lock:tick-skipped', listen);
    const app = await boot([Slow]);
    await until(() => skipped.filter(({ reason }) => reason === 'overlap').length >= 3);
    app.get(Slow).gate.open();
    await until(() => app.get(Slow).runs >= 2);
    unsubscribe('nestjs-distributed-lock:tick-skipped', listen);
    expect(app.get(Slow).most).toBe(1);
    expect(skipped[0]).toMatchObject({ job: 'Slow.job', tick: expect.any(Date), namespace: 'lock' });
  });

  it('skips the tick while the store is unreachable, and continues when it is back', async () => {
    class Flaky extends MemoryBackend {
      isDown = true;
      override execute(...args: Parameters<MemoryBackend['execute']>): ReturnType<MemoryBackend['execute']> {
        return this.isDown ? Promise.reject(new Error('down')) : super.execute(...args);
      }
    }
    const reasons: string[] = [];
    const listen = (message: unknown) => reasons.push((message as { reason: string }).reason);
    subscribe('nestjs-distributed-lock:tick-skipped', listen);
    const backend = new Flaky();
    const app = await boot([Short], { backend });
    await until(() => reasons.includes('unavailable'));
    expect(app.get(Short).runs).toEqual([]);
    backend.isDown = false;
    await until(() => app.get(Short).runs.length > 0);
    unsubscribe('nestjs-distributed-lock:tick-skipped', listen);
  });

  it('does not collide with a lock of the same name', async () => {
    const app = await boot([Above]);
    await using _ = await app.get(LockService).acquire('job');
    await until(() => app.get(Above).runs.length > 0);
  });

  it('counts a failed run as a run, and continues with the next tick', async () => {
    @Injectable()
    class Failing {
      runs = 0;
      @SingletonCron()
      @Interval(50)
      async job(): Promise<void> {
        this.runs += 1;
        throw new Error('job failed');
      }
    }
    const app = await boot([Failing]);
    await until(() => app.get(Failing).runs >= 3);
  });

  it('lets a job call the method of its super class within its own run', async () => {
    @Injectable()
    class Extending extends Short {
      inner = 0;
      @SingletonCron({ key: 'extending' })
      @Interval(50)
      override async job(run: CronRun): Promise<void> {
        await super.job(run);
        this.inner += 1;
      }
    }
    const app = await boot([Extending]);
    await until(() => app.get(Extending).inner >= 2);
    expect(app.get(Extending).runs.length).toBeGreaterThanOrEqual(2);
  });

  it('cannot be called before the application has booted, and the error names when it can', async () => {
    const app = await Test.createTestingModule({
      imports: [DistributedLockModule.forRoot({ backend: new MemoryBackend() }), ScheduleModule.forRoot()],
      providers: [Above],
    }).compile();
    closing.push(app);
    await expect(app.get(Above).job({} as CronRun)).rejects.toThrow(
      /Above\.job was called before.*onApplicationBootstrap/,
    );
  });

  it('uses the name of @Cron, else Class.method, as the key; an empty name is none', async () => {
    @Injectable()
    class Named {
      keys: string[] = [];
      @SingletonCron()
      @Cron(EACH_SECOND, { name: 'nightly' })
      async one(): Promise<void> {
        this.keys.push(currentLock()!.key);
      }
      @Cron(EACH_SECOND, { name: '' })
      @SingletonCron()
      async two(): Promise<void> {
        this.keys.push(currentLock()!.key);
      }
    }
    const app = await boot([Named]);
    await until(() => app.get(Named).keys.length >= 2);
    expect(new Set(app.get(Named).keys)).toEqual(new Set(['nightly', 'Named.two']));
  });
});

describe('the application does not boot', () => {
  it('with two jobs of the same key', async () => {
    @Injectable()
    class Twins {
      @SingletonCron('0 0 * * *', { key: 'same' })
      async one(): Promise<void> {}
      @SingletonCron('0 0 * * *', { key: 'same' })
      async two(): Promise<void> {}
    }
    await expect(boot([Twins])).rejects.toThrow(/'same', which is also that of Twins\.one/);
  });

  it.each(['n'.repeat(256), 'a\0b'])('with a name of its schedule that is no key', async (name) => {
    @Injectable()
    class LongName {
      @SingletonCron()
      @Cron('0 0 * * *', { name })
      async job(): Promise<void> {}
    }
    await expect(boot([LongName])).rejects.toThrow(
      /LongName\.job: expected the name of its schedule, which is its key, to be a text of 1 to 255/,
    );
  });

  it('with a guarded method that nothing schedules', async () => {
    @Injectable()
    class Idle {
      @SingletonCron()
      async job(): Promise<void> {}
    }
    await expect(boot([Idle])).rejects.toThrow(/@SingletonCron on Idle\.job.*expected @Cron or @Interval/);
  });

  it.each([undefined, NaN, '500', 0, -5, 2 ** 31])('with a guarded @Interval of %j', async (ms) => {
    @Injectable()
    class Fast {
      @SingletonCron()
      @Interval(ms as number)
      async job(): Promise<void> {}
    }
    await expect(boot([Fast])).rejects.toThrow(
      /@SingletonCron on Fast\.job.*milliseconds of @Interval to be a number from 1 to 2147483647/,
    );
  });

  it('with a guarded @Timeout of a number that is not set', async () => {
    @Injectable()
    class Early {
      @SingletonCron({ deployKey: '1' })
      @Timeout(NaN)
      async job(): Promise<void> {}
    }
    await expect(boot([Early])).rejects.toThrow(/@Timeout to be a number.*got NaN.*variable is not set/);
  });

  it('with a guarded @Timeout without a deployKey', async () => {
    @Injectable()
    class Later {
      @SingletonCron()
      @Timeout(10)
      async job(): Promise<void> {}
    }
    await expect(boot([Later])).rejects.toThrow(/expected a deployKey beside @Timeout/);
  });

  it('with a deployKey where there is no @Timeout', async () => {
    @Injectable()
    class Confused {
      @SingletonCron(EACH_SECOND, { deployKey: 'v1' })
      async job(): Promise<void> {}
    }
    await expect(boot([Confused])).rejects.toThrow(/expected @Timeout of @nestjs\/schedule beside deployKey/);
  });

  it.each([
    ['request-scoped', Scope.REQUEST],
    ['transient', Scope.TRANSIENT],
  ])('with a guarded job in a %s provider', async (_, scope) => {
    @Injectable({ scope })
    class MadeOften {
      @SingletonCron(EACH_SECOND)
      async job(): Promise<void> {}
    }
    await expect(boot([MadeOften])).rejects.toThrow(
      /MadeOften\.job: expected a provider that Nest creates once/,
    );
  });

  it('with a second schedule above the expression', async () => {
    @Injectable()
    class Torn {
      @Cron('0 0 1 1 *')
      @SingletonCron(EACH_SECOND)
      async job(): Promise<void> {}
    }
    await expect(boot([Torn])).rejects.toThrow(/expected one schedule/);
  });

  it.each(['above', 'below'])('with @Interval above and @Cron below the guard, or %s it', async (where) => {
    @Injectable()
    class Around {
      @Interval(1_000)
      @SingletonCron()
      @Cron('0 0 * * *')
      async job(): Promise<void> {}
    }
    @Injectable()
    class Below {
      @SingletonCron()
      @Cron('0 0 * * *')
      @Timeout(1_000)
      async job(): Promise<void> {}
    }
    await expect(boot([where === 'above' ? Around : Below])).rejects.toThrow(/expected one schedule/);
  });

  it.each([
    ['that mixin() has named', (named: Type): Type => mixin(named)],
    ['without a name', (named: Type): Type => Object.defineProperty(named, 'name', { value: '' })],
  ])('with a job without a key in a class %s', async (_, rename) => {
    @Injectable()
    class Sync {
      @SingletonCron(EACH_SECOND)
      async job(): Promise<void> {}
    }
    const booted = boot([rename(Sync)]);
    await expect(booted).rejects.toThrow(LockConfigError);
    await expect(booted).rejects.toThrow(/expected a key, as the name of the class is/);
  });

  it.each(['constructor', 'onModuleInit'])('with the key of a job that was guarded in %s', async (where) => {
    @Injectable()
    class Guarding {
      constructor(private readonly runs: CronRuns) {
        if (where === 'constructor') this.guard();
      }
      onTick?: GuardedTick;
      guard(): void {
        this.onTick = this.runs.guard('sync', { cronTime: EACH_SECOND }, () => undefined);
      }
      onModuleInit(): void {
        if (where === 'onModuleInit') this.guard();
      }
      @SingletonCron(EACH_SECOND, { key: 'sync' })
      async job(): Promise<void> {}
    }
    await expect(boot([Guarding])).rejects.toThrow(/a key of its own/);
  });

  it('with an invalid cron expression', async () => {
    @Injectable()
    class Wrong {
      @SingletonCron('every day')
      async job(): Promise<void> {}
    }
    await expect(boot([Wrong])).rejects.toThrow(LockConfigError);
  });

  it('with an expression that never fires', async () => {
    @Injectable()
    class Never {
      @SingletonCron('0 0 30 2 *', { onMissed: 'once' })
      async job(): Promise<void> {}
    }
    await expect(boot([Never])).rejects.toThrow(/SingletonCron.*fires at some time, got '0 0 30 2 \*'/);
  });

  it('with a time zone beside @Cron instead of in it', async () => {
    @Injectable()
    class Misplaced {
      @SingletonCron({ timeZone: 'Europe/Berlin' })
      @Cron(EACH_SECOND)
      async job(): Promise<void> {}
    }
    await expect(boot([Misplaced])).rejects.toThrow(/time zone in the options of @Cron/);
  });
});

describe('@SingletonCron refuses when the class is defined', () => {
  it('a second schedule below the expression', () => {
    expect(() => {
      class Torn {
        @SingletonCron(EACH_SECOND)
        @Cron('0 0 1 1 *')
        async job(): Promise<void> {}
      }
      return Torn;
    }).toThrow(/expected one schedule/);
  });

  it('two guards on one method', () => {
    expect(() => {
      class Twice {
        @SingletonCron(EACH_SECOND)
        @SingletonCron(EACH_SECOND)
        async job(): Promise<void> {}
      }
      return Twice;
    }).toThrow(/found it twice/);
  });

  it('@LeaderOnly below, which would use up the tick where nobody leads', () => {
    expect(() => {
      class Led {
        @SingletonCron(EACH_SECOND)
        @LeaderOnly('mailer')
        async job(): Promise<string | undefined> {
          return 'ran';
        }
      }
      return Led;
    }).toThrow(/@SingletonCron on Led\.job: expected no @LeaderOnly below it: .*the option leader/);
  });

  it.each([
    [{ maxAttempts: 3 }, /expected onDeadRun: 'retry' beside maxAttempts/],
    [{ onDeadRun: 'retry', maxAttempts: 1 }, /maxAttempts to be a whole number from 2/],
    [{ missedWithinMs: 1_000 }, /expected onMissed: 'once' beside missedWithinMs/],
    [{ jitterMs: 5_000, staleAfterMs: 5_000 }, /jitterMs to be less than staleAfterMs/],
    [{ deployKey: 'v1', overlap: 'allow' }, /expected no overlap beside deployKey/],
    [{ deployKey: 'v1', leader: 'boss' }, /expected no leader beside deployKey/],
    [{ overlap: 'maybe' }, /'forbid' or 'allow'/],
    [{ leader: '' }, /options.leader/],
    [{ onMissed: 'always' }, /'skip' or 'once'/],
    [{ leaseMs: 1 }, /leaseMs/],
    [{ period: 5 }, /no option 'period'/],
  ])('the options %j', (options, message) => {
    const define = () => {
      class Wrong {
        @SingletonCron(EACH_SECOND, options as object)
        async job(): Promise<void> {}
      }
      return Wrong;
    };
    expect(define).toThrow(LockConfigError);
    expect(define).toThrow(message);
  });
});
