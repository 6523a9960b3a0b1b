import { afterEach, describe, expect, it } from 'vitest';
import { Controller, Get, Injectable, Scope, type Type, UseGuards } from '@nestjs/common';
import { ModuleRef } from '@nestjs/core';
import { Cron, Interval, ScheduleModule } from '@nestjs/schedule';
import { Test, type TestingModule } from '@nestjs/testing';
import { MemoryBackend } from '../../lib/backends/memory/index.js';
import {
  DistributedLockModule,
  LeaderElection,
  LeaderOnly,
  LockConfigError,
  OnElected,
  OnRevoked,
  SingletonCron,
} from '../../lib/index.js';
import { until } from '../support/until.js';

const EACH_SECOND = '* * * * * *';

const closing: TestingModule[] = [];
afterEach(async () => {
  for (const app of closing.splice(0)) await app.close();
});

async function boot(providers: readonly object[], controllers: Type[] = []): Promise<TestingModule> {
  const app = await Test.createTestingModule({
    imports: [DistributedLockModule.forRoot({ backend: new MemoryBackend() }), ScheduleModule.forRoot()],
    providers: providers as Type[],
    controllers,
  })
    .setLogger({ log: () => undefined, warn: () => undefined, error: () => undefined })
    .compile();
  closing.push(app);
  return app.init();
}

/** Wraps a method without its metadata, as tracing libraries do. */
const Traced = (): MethodDecorator => (_target, _name, descriptor: PropertyDescriptor) => {
  const original = descriptor.value as (...args: unknown[]) => unknown;
  descriptor.value = async function (this: unknown, ...args: unknown[]): Promise<unknown> {
    return original.apply(this, args);
  };
};

@Injectable()
class Worker {
  @LeaderOnly('work')
  async work(): Promise<string | undefined> {
    return 'led';
  }
}

const leads = (call: () => Promise<unknown>) => until(async () => (await call()) === 'led');

describe('@LeaderOnly', () => {
  it('joins when the application boots, on a guard', async () => {
    @Injectable()
    class LeaderGuard {
      @LeaderOnly('guard')
      async canActivate(): Promise<boolean | undefined> {
        return true;
      }
    }
    @Controller()
    class Guarded {
      @Get()
      @UseGuards(LeaderGuard)
      get(): void {}
    }
    const app = await boot([], [Guarded]);
    const guard = app.get(LeaderGuard, { strict: false });
    await until(async () => (await guard.canActivate()) === true);
  });

  it('joins at the first call on an instance of a request-scoped factory', async () => {
    const app = await boot([{ provide: 'made', scope: Scope.REQUEST, useFactory: () => new Worker() }]);
    await leads(async () => (await app.resolve<Worker>('made')).work());
  });

  it('joins at the first call on an instance of moduleRef.create()', async () => {
    const app = await boot([]);
    const worker = await app.get(ModuleRef).create(Worker);
    await leads(() => worker.work());
  });

  it('does not join again after the process has left the election with leave()', async () => {
    const app = await boot([]);
    const worker = await app.get(ModuleRef).create(Worker);
    await leads(() => worker.work());
    await app.get(LeaderElection).join('work').leave();
    expect(await worker.work()).toBeUndefined();
    const candidate = app.get(LeaderElection).join('other');
    await until(() => candidate.isLeader());
    expect(await worker.work()).toBeUndefined();
  });

  it('returns while the application shuts down, and joins nothing', async () => {
    const app = await boot([]);
    const worker = await app.get(ModuleRef).create(Worker);
    await app.close();
    expect(await worker.work()).toBeUndefined();
  });
});

describe('under a decorator that hides their metadata', () => {
  class Recording {
    readonly calls: string[] = [];
  }

  it('methods of elections take part', async () => {
    @Injectable()
    class Hidden extends Recording {
      @Traced()
      @OnElected('handlers')
      elected(): void {
        this.calls.push('elected');
      }

      @Traced()
      @OnRevoked('handlers')
      revoked(): void {
        this.calls.push('revoked');
      }

      @OnElected('outer')
      @Traced()
      @OnElected('inner')
      both(): void {
        this.calls.push('both');
      }

      @Traced()
      @LeaderOnly('only')
      async only(): Promise<string | undefined> {
        return 'led';
      }
    }
    const app = await boot([Hidden]);
    const hidden = app.get(Hidden);
    await until(() => hidden.calls.length === 3);
    expect(hidden.calls.toSorted()).toEqual(['both', 'both', 'elected']);
    await app.get(LeaderElection).join('handlers').resign();
    expect(hidden.calls).toContain('revoked');
    await leads(() => hidden.only());
  });

  it('methods that a constructor binds take part', async () => {
    @Injectable()
    class Bound extends Recording {
      constructor() {
        super();
        this.elected = this.elected.bind(this);
      }

      @OnElected('bound')
      elected(): void {
        this.calls.push('elected');
      }
    }
    const app = await boot([Bound]);
    await until(() => app.get(Bound).calls.length === 1);
  });

  it('a method that overrides a decorated one takes no part', async () => {
    @Injectable()
    class Base extends Recording {
      @Traced()
      @OnElected('base')
      elected(): void {
        this.calls.push('base');
      }

      @OnElected('mark')
      other(): void {
        this.calls.push('other');
      }
    }
    @Injectable()
    class Heir extends Base {
      override elected(): void {
        this.calls.push('heir');
      }
    }
    const app = await boot([Heir]);
    await until(() => app.get(Heir).calls.length > 0);
    expect(app.get(Heir).calls).toEqual(['other']);
    const candidate = app.get(LeaderElection).join('base');
    await until(() => candidate.isLeader());
    expect(app.get(Heir).calls).toEqual(['other']);
  });

  it('a guarded job runs if its schedule is above', async () => {
    @Injectable()
    class Jobs extends Recording {
      @Interval(20)
      @Traced()
      @SingletonCron({ key: 'interval' })
      async interval(): Promise<void> {
        this.calls.push('interval');
      }
    }
    const app = await boot([Jobs]);
    await until(() => app.get(Jobs).calls.length > 1);
  });

  it('a guarded job does not boot if its schedule is hidden too, and the message explains what to do', async () => {
    @Injectable()
    class Below extends Recording {
      @Traced()
      @SingletonCron(EACH_SECOND)
      async job(): Promise<void> {}
    }
    @Injectable()
    class CronBelow extends Recording {
      @Traced()
      @SingletonCron({ key: 'job' })
      @Cron(EACH_SECOND)
      async job(): Promise<void> {}
    }
    @Injectable()
    class Bound extends Recording {
      constructor() {
        super();
        this.job = this.job.bind(this);
      }

      @SingletonCron(EACH_SECOND)
      async job(): Promise<void> {}
    }
    for (const type of [Below, CronBelow, Bound]) {
      const booting = boot([type]);
      await expect(booting).rejects.toThrow(LockConfigError);
      await expect(booting).rejects.toThrow(
        /job: expected @nestjs\/schedule to see.*Put that decorator below/s,
      );
    }
  });

  it('a second guard is found', () => {
    const define = () => {
      class Twice {
        @SingletonCron({ key: 'a' })
        @Traced()
        @SingletonCron(EACH_SECOND)
        async job(): Promise<void> {}
      }
      return Twice;
    };
    expect(define).toThrow(/found it twice/);
  });
});
