import { describe, expect, it } from 'vitest';
import {
  Injectable,
  type LoggerService,
  Module,
  type OnApplicationBootstrap,
  type OnModuleInit,
  type Provider,
  Scope,
  type Type,
} from '@nestjs/common';
import { LazyModuleLoader, type ModuleRef, NestFactory } from '@nestjs/core';
import { Cron, ScheduleModule } from '@nestjs/schedule';
import { Test, type TestingModule } from '@nestjs/testing';
import { memoryBackend } from '../../lib/backends/memory/index.js';
import {
  DistributedLockModule,
  LeaderElection,
  LeaderOnly,
  LockConfigError,
  Locked,
  OnElected,
  SingletonCron,
  currentLock,
} from '../../lib/index.js';
import { until } from '../support/until.js';

class Orders {
  @Locked('orders')
  async key(): Promise<string | undefined> {
    return currentLock()?.key;
  }
}

/** Loads a module with these providers into a running application. */
async function load(providers: Provider[], use: (ref: ModuleRef, app: TestingModule) => Promise<void>) {
  @Module({ providers })
  class LazyModule {}
  const warned: string[] = [];
  const ignore = () => undefined;
  const logger: LoggerService = {
    log: ignore,
    error: ignore,
    warn: (text: string) => void warned.push(text),
  };
  const app = await Test.createTestingModule({
    imports: [DistributedLockModule.forRoot({ backend: memoryBackend() }), ScheduleModule.forRoot()],
  })
    .setLogger(logger)
    .compile();
  await app.init();
  try {
    await use(await app.get(LazyModuleLoader).load(() => LazyModule), app);
  } finally {
    await app.close();
  }
  return warned;
}

it.each<[string, Provider]>([
  ['a class', Orders],
  ['a factory', { provide: Orders, useFactory: () => new Orders() }],
  ['an asynchronous factory', { provide: Orders, useFactory: async () => Promise.resolve(new Orders()) }],
  ['a value', { provide: Orders, useValue: new Orders() }],
])('%s of a lazily loaded module has its locks', async (_, provider) => {
  await load([provider], async (ref) => {
    expect(await ref.get(Orders).key()).toBe('orders');
  });
});

it('each instance that a factory of a lazily loaded module creates later has its locks', async () => {
  const provider = { provide: Orders, scope: Scope.TRANSIENT, useFactory: () => new Orders() };
  await load([provider], async (ref) => {
    expect(await (await ref.resolve(Orders)).key()).toBe('orders');
    expect(await (await ref.resolve(Orders)).key()).toBe('orders');
  });
});

it('a lazily loaded module takes part in elections, even if this process leads already', async () => {
  const elected: bigint[] = [];
  @Injectable()
  class Leader {
    @OnElected('boss')
    begin({ number }: { readonly number: bigint }): void {
      elected.push(number);
    }

    @LeaderOnly('other')
    async decide(): Promise<string | undefined> {
      return 'decided';
    }
  }
  await load([Leader], async (ref, app) => {
    await until(async () => (await ref.get(Leader).decide()) === 'decided');
    await until(() => elected.length === 1);
    const term = app.get(LeaderElection).join('boss').term();
    expect(elected).toEqual([term?.number]);
  });
});

it('a handler of a lazily loaded module is called for the current term', async () => {
  let calls = 0;
  @Injectable()
  class Late {
    @OnElected('boss')
    begin(): void {
      calls += 1;
    }
  }
  await load([], async (_, app) => {
    const boss = app.get(LeaderElection).join('boss');
    await until(() => boss.isLeader());
    @Module({ providers: [Late] })
    class LateModule {}
    await app.get(LazyModuleLoader).load(() => LateModule);
    await app.get(LazyModuleLoader).load(() => LateModule);
    await until(() => calls > 0);
    expect(calls).toBe(1);
  });
});

it('a job of a lazily loaded module, which @nestjs/schedule never fires, logs a warning', async () => {
  @Injectable()
  class Report {
    @SingletonCron()
    @Cron('0 3 * * *')
    async run(): Promise<void> {}
  }
  expect(await load([Report], () => Promise.resolve())).toEqual([
    expect.stringMatching(/@SingletonCron on Report\.run.*never runs.*loaded lazily/),
  ]);
});

it.each([{}, { isGlobal: false }, { name: 'reports' }])(
  'DistributedLockModule itself is refused, with the reason: %j',
  async (identity) => {
    @Module({ imports: [DistributedLockModule.forRoot({ ...identity, backend: memoryBackend() })] })
    class Feature {}
    const app = await Test.createTestingModule({}).compile();
    await app.init();
    const loading = app.get(LazyModuleLoader).load(() => Feature);
    await expect(loading).rejects.toThrow(LockConfigError);
    await expect(loading).rejects.toThrow(/loaded lazily.*Import it in the root module/s);
    await app.close();
  },
);

describe('a module that is loaded lazily while the application boots', () => {
  @Module({})
  class LazyModule {}

  @Injectable()
  class InModuleInit implements OnModuleInit {
    constructor(readonly lazyModules: LazyModuleLoader) {}

    async onModuleInit(): Promise<void> {
      await this.lazyModules.load(() => LazyModule);
    }
  }

  @Injectable()
  class InBootstrap implements OnApplicationBootstrap {
    constructor(readonly lazyModules: LazyModuleLoader) {}

    async onApplicationBootstrap(): Promise<void> {
      await this.lazyModules.load(() => LazyModule);
    }
  }

  it.each<[string, Type]>([
    ['onModuleInit', InModuleInit],
    ['onApplicationBootstrap of a deep module', InBootstrap],
  ])('in %s: elections begin, after the hooks of the root module', async (_, provider) => {
    const log: string[] = [];

    @Injectable()
    class Leader {
      @OnElected('boss')
      begin(): void {
        log.push('elected');
      }
    }

    @Module({ providers: [provider] })
    class DeepModule {}
    @Module({ imports: [DeepModule] })
    class MiddleModule {}
    @Module({ imports: [MiddleModule] })
    class FeatureModule {}
    @Module({
      imports: [DistributedLockModule.forRoot({ backend: memoryBackend() }), FeatureModule],
      providers: [Leader],
    })
    class AppModule implements OnApplicationBootstrap {
      async onApplicationBootstrap(): Promise<void> {
        await new Promise((resolve) => setTimeout(resolve, 50)); // long enough for an election
        log.push('root');
      }
    }

    const app = await NestFactory.createApplicationContext(AppModule, { logger: false });
    try {
      await until(() => log.includes('elected'));
      expect(log).toEqual(['root', 'elected']);
    } finally {
      await app.close();
    }
  });
});
