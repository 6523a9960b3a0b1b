import { afterEach, describe, expect, it } from 'vitest';
import { Controller, Get, Inject, Injectable, Module, Scope, type Type } from '@nestjs/common';
import { DiscoveryService } from '@nestjs/core';
import { Test, type TestingModule } from '@nestjs/testing';
import { LockService, LockShutdownError, Locked, currentLock } from '../../lib/index.js';
import { LockTestingModule, type LockTestingModuleOptions } from '../../lib/testing/index.js';

const keyInHand = () => currentLock()?.key;

@Injectable()
class Base {
  @Locked('base')
  async method(): Promise<unknown> {
    return keyInHand();
  }
}

@Injectable()
class Inheriting extends Base {}

@Injectable()
class OverridingBare extends Base {
  override async method(): Promise<unknown> {
    return keyInHand();
  }
}

@Injectable()
class OverridingAndCallingSuper extends Base {
  @Locked('sub')
  override async method(): Promise<unknown> {
    return [keyInHand(), await super.method()];
  }
}

@Injectable({ scope: Scope.REQUEST })
class PerRequest extends Base {}

@Injectable({ scope: Scope.TRANSIENT })
class Transient extends Base {}

@Controller()
class RequestController {
  constructor(@Inject(PerRequest) private readonly perRequest: PerRequest) {}

  @Get()
  handle(): Promise<unknown> {
    return this.perRequest.method();
  }
}

class MadeByHand {
  constructor(readonly note: string) {}

  @Locked('by-hand')
  async method(): Promise<unknown> {
    return keyInHand();
  }
}

@Injectable()
class WithNamedService {
  @Locked('named', { service: 'second' })
  async method(locks: LockService): Promise<unknown> {
    return locks.inspect('named');
  }
}

const apps: TestingModule[] = [];
afterEach(async () => {
  for (const app of apps.splice(0)) await app.close();
});

async function boot(providers: object[], options?: LockTestingModuleOptions): Promise<TestingModule> {
  const app = await Test.createTestingModule({
    imports: [LockTestingModule.forRoot(options)],
    providers: providers as Type[],
  }).compile();
  apps.push(app);
  return app.init();
}

describe('@Locked works', () => {
  it('in a subclass that inherits the method', async () => {
    const app = await boot([Inheriting]);
    expect(await app.get(Inheriting).method()).toBe('base');
  });

  it('not in a subclass that overrides it without the decorator', async () => {
    const app = await boot([OverridingBare]);
    expect(await app.get(OverridingBare).method()).toBeUndefined();
  });

  it('twice in a subclass that overrides it with the decorator and calls super', async () => {
    const app = await boot([OverridingAndCallingSuper]);
    expect(await app.get(OverridingAndCallingSuper).method()).toEqual(['sub', 'base']);
  });

  it('in a transient provider', async () => {
    const app = await boot([Transient]);
    expect(await (await app.resolve(Transient)).method()).toBe('base');
  });

  it('in a request-scoped provider', async () => {
    const module = await Test.createTestingModule({
      imports: [LockTestingModule.forRoot()],
      controllers: [RequestController],
      providers: [PerRequest],
    }).compile();
    apps.push(module);
    const app = module.createNestApplication({ logger: false });
    await app.listen(0, '127.0.0.1');
    expect(await (await fetch(await app.getUrl())).text()).toBe('base');
    await app.close();
  });

  it('leaves a static provider static', async () => {
    const app = await boot([Base]);
    expect(() => app.get(Base)).not.toThrow(); // It throws for a provider that must be resolved.
  });

  it('in an instance that a factory created', async () => {
    const app = await boot([{ provide: MadeByHand, useFactory: () => new MadeByHand('factory') }]);
    expect(await app.get(MadeByHand).method()).toBe('by-hand');
  });

  it('in an instance given as a value', async () => {
    const app = await boot([{ provide: 'made', useValue: new MadeByHand('value') }]);
    expect(await app.get<MadeByHand>('made').method()).toBe('by-hand');
  });

  it('not in a frozen instance: the application boots, and the call throws', async () => {
    const freeze = async () => Object.freeze(new MadeByHand('frozen'));
    const app = await boot([{ provide: 'made', useFactory: freeze }]);
    await expect(app.get<MadeByHand>('made').method()).rejects.toThrow(
      /this MadeByHand was not created by Nest, is used too early \(in its constructor, or by another factory during the boot\), or is frozen/,
    );
  });

  it('not in an instance that Nest has not created: the call throws', async () => {
    await boot([]);
    await expect(new MadeByHand('new').method()).rejects.toThrow(
      /@Locked on MadeByHand\.method: this MadeByHand was not created by Nest, is used too early \(in its constructor, or by another factory during the boot\), or is frozen.*DistributedLockModule\.forRoot\(\) imported\?/,
    );
  });

  it('with the service of a named module', async () => {
    const app = await Test.createTestingModule({
      imports: [
        LockTestingModule.forRoot(),
        LockTestingModule.forRoot({ name: 'second', namespace: 'other' }),
      ],
      providers: [WithNamedService],
    }).compile();
    apps.push(await app.init());
    const named = app.get<LockService>('secondLockService');
    expect(await app.get(WithNamedService).method(app.get(LockService))).toBeNull();
    expect(await app.get(WithNamedService).method(named)).toMatchObject({ key: 'named' });
  });

  it('with the service of its own application if there are two', async () => {
    const [first, second] = [await boot([Base]), await boot([Base])];
    const held = await first.get(LockService).acquire('base');
    expect(await second.get(Base).method()).toBe('base');
    await held.release();
  });

  it('with a service that a test overrides', async () => {
    const asked: string[] = [];
    const stub = {
      withLock: (key: string, _: object, work: () => Promise<unknown>) => {
        asked.push(key);
        return work();
      },
    };
    const app = await Test.createTestingModule({ imports: [LockTestingModule.forRoot()], providers: [Base] })
      .overrideProvider(LockService)
      .useValue(stub)
      .compile();
    apps.push(await app.init());
    await app.get(Base).method();
    expect(asked).toEqual(['base']);
  });

  it('without a visible property on the instance', async () => {
    const app = await boot([Base]);
    const instance = app.get(Base);
    expect(Object.keys(instance)).toEqual([]);
    expect(JSON.stringify(instance)).toBe('{}');
  });

  it('only where the module is imported, and the boot error names what to import', async () => {
    const bare = Test.createTestingModule({ providers: [Base] }).compile();
    await expect(bare).rejects.toThrow(/DistributedLockModule\.forRoot\(\) imported\?/);
  });
});

class Migration {
  ran: unknown;

  @Locked('migration')
  async onModuleInit(): Promise<void> {
    this.ran = keyInHand();
  }
}

const nextTurn = () => new Promise(setImmediate);

describe('an instance that a factory created', () => {
  it.each([
    ['at once', () => new Migration()],
    [
      'later',
      async () => {
        await nextTurn();
        return new Migration();
      },
    ],
  ])('%s, in a deep module, may use its lock in onModuleInit', async (_, useFactory) => {
    @Module({})
    class Deep {}
    @Module({})
    class Deeper {}
    @Module({})
    class Deepest {}
    const app = await Test.createTestingModule({
      imports: [
        LockTestingModule.forRoot(),
        {
          module: Deep,
          imports: [
            {
              module: Deeper,
              imports: [{ module: Deepest, providers: [{ provide: Migration, useFactory }] }],
            },
          ],
        },
      ],
    }).compile();
    apps.push(app);
    await app.init();
    expect(app.get(Migration, { strict: false }).ran).toBe('migration');
  });

  it.each([
    ['a request-scoped', { scope: Scope.REQUEST }],
    ['a transient', { scope: Scope.TRANSIENT }],
  ])('has its lock if %s provider created it', async (_, scoped) => {
    const app = await boot([
      { ...scoped, provide: 'made', useFactory: () => new MadeByHand('x') },
      { ...scoped, provide: 'made later', useFactory: async () => new MadeByHand('x') },
      { provide: 'user', inject: ['made'], scope: Scope.TRANSIENT, useFactory: (made: MadeByHand) => made },
    ]);
    for (const token of ['made', 'made later', 'user']) {
      expect(await (await app.resolve<MadeByHand>(token)).method()).toBe('by-hand');
    }
  });

  it('has its lock if its provider is created once and depends on a transient one', async () => {
    const app = await boot([
      { provide: 'made', scope: Scope.TRANSIENT, useFactory: () => new MadeByHand('x') },
      { provide: 'user', inject: ['made'], useFactory: (made: MadeByHand) => ({ made }) },
    ]);
    expect(await app.get<{ made: MadeByHand }>('user').made.method()).toBe('by-hand');
  });

  it('has its lock if its factory returns a thenable that is no native promise', async () => {
    const later = Promise.resolve(new MadeByHand('x'));
    const thenable: PromiseLike<MadeByHand> = { then: (...handlers) => later.then(...handlers) };
    const app = await boot([
      { provide: 'made', scope: Scope.TRANSIENT, useFactory: () => thenable as Promise<MadeByHand> },
    ]);
    expect(await (await app.resolve<MadeByHand>('made')).method()).toBe('by-hand');
  });

  it('keeps the metadata of its factory', async () => {
    const useFactory = () => new MadeByHand('x');
    Reflect.defineMetadata('kept', 'metadata', useFactory);
    const app = await boot([{ provide: 'made', useFactory }]);
    const wrapper = app
      .get(DiscoveryService, { strict: false })
      .getProviders()
      .find(({ token }) => token === 'made');
    expect(Reflect.getMetadata('kept', wrapper!.metatype!)).toBe('metadata');
  });
});

describe('an instance given as a value to several applications', () => {
  const shared = () => {
    const value = new MadeByHand('x');
    return { value, provider: { provide: MadeByHand, useValue: value } };
  };

  it('uses the locks of each of them in turn', async () => {
    const { value, provider } = shared();
    for (const _ of [1, 2, 3]) {
      const app = await boot([provider]);
      expect(await value.method()).toBe('by-hand');
      await app.close();
      await expect(value.method()).rejects.toThrow(LockShutdownError);
    }
  });

  it.each([
    ['first', 0],
    ['second', 1],
  ])('keeps working in the other when the %s one ends', async (_, index) => {
    const { value, provider } = shared();
    const both = [await boot([provider]), await boot([provider])];
    await both[index]!.close();
    expect(await value.method()).toBe('by-hand');
  });

  it('may have been created by Nest in another one', async () => {
    const first = await boot([Base]);
    const instance = first.get(Base);
    await first.close();
    await boot([{ provide: Base, useValue: instance }]);
    expect(await instance.method()).toBe('base');
  });
});
