import { afterEach, describe, expect, it } from 'vitest';
import { type DynamicModule, Injectable, Module } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { Test, type TestingModuleBuilder } from '@nestjs/testing';
import { MemoryBackend, memoryBackend } from '../../lib/backends/memory/index.js';
import {
  type AcquireOptions,
  DistributedLockModule,
  type DistributedLockModuleOptions,
  type DistributedLockOptionsFactory,
  InjectLockService,
  type ListOptions,
  LockConfigError,
  LockService,
  getLockServiceToken,
} from '../../lib/index.js';
import { LockTestingModule } from '../../lib/testing/index.js';

const closing: { close(): Promise<void> }[] = [];
afterEach(async () => {
  for (const app of closing.splice(0)) await app.close();
});

async function boot(builder: TestingModuleBuilder) {
  const app = await builder.compile();
  closing.push(app);
  return app.init();
}

const backendOnly = () => ({ backend: memoryBackend() });

const booted = (...imports: NonNullable<Parameters<typeof Test.createTestingModule>[0]['imports']>) =>
  boot(Test.createTestingModule({ imports }));

@Injectable()
class Settings implements DistributedLockOptionsFactory {
  readonly backend = memoryBackend();

  createDistributedLockOptions() {
    return { backend: this.backend, namespace: 'settings' };
  }
}

@Module({ providers: [Settings], exports: [Settings] })
class SettingsModule {}

describe('DistributedLockModule', () => {
  it('provides the service', async () => {
    const app = await booted(DistributedLockModule.forRoot({ backend: memoryBackend() }));
    await using lock = await app.get(LockService).acquire('key');
    expect(lock.isValid()).toBe(true);
  });

  it('takes its options from a factory with dependencies', async () => {
    const options = DistributedLockModule.forRootAsync({
      imports: [SettingsModule],
      inject: [Settings],
      useFactory: (settings: Settings) => ({ backend: settings.backend, instance: 'from-factory' }),
    });
    const app = await booted(options);
    await using _ = await app.get(LockService).acquire('key');
    expect(await app.get(LockService).inspect('key')).toMatchObject({ instance: 'from-factory' });
  });

  it('takes its options from a class', async () => {
    const app = await booted(DistributedLockModule.forRootAsync({ useClass: Settings }));
    expect(await app.get(LockService).inspect('key')).toBeNull();
  });

  it('takes its options from an existing provider', async () => {
    const app = await booted(
      DistributedLockModule.forRootAsync({ imports: [SettingsModule], useExisting: Settings }),
    );
    await using _ = await app.get(LockService).acquire('key');
    expect(await app.get(Settings, { strict: false }).backend.inspect('settings:key')).not.toBeNull();
  });

  it('is visible everywhere by default', async () => {
    @Injectable()
    class Reader {
      constructor(@InjectLockService() readonly locks: LockService) {}
    }
    @Module({ providers: [Reader] })
    @Module({})
    class Feature {}
    const app = await booted(DistributedLockModule.forRoot({ backend: memoryBackend() }), Feature);
    expect(app.get(Reader, { strict: false }).locks).toBe(app.get(LockService));
  });

  it('is visible only where it is imported if it is not global', async () => {
    @Injectable()
    class Reader {
      constructor(@InjectLockService() readonly locks: LockService) {}
    }
    @Module({ providers: [Reader] })
    @Module({})
    class Feature {}
    const lockModule = DistributedLockModule.forRootAsync({
      isGlobal: false,
      useFactory: () => ({ backend: memoryBackend() }),
    });
    await expect(booted(lockModule, Feature)).rejects.toThrow(/resolve dependencies/);
  });

  it('works beside a second module with a name', async () => {
    @Injectable()
    class Both {
      constructor(
        @InjectLockService() readonly first: LockService,
        @InjectLockService('reports') readonly second: LockService,
      ) {}
    }
    const app = await boot(
      Test.createTestingModule({
        imports: [
          DistributedLockModule.forRoot({ backend: memoryBackend(), instance: 'one' }),
          DistributedLockModule.forRootAsync({
            name: 'reports',
            useFactory: () => ({ backend: memoryBackend(), instance: 'two' }),
          }),
        ],
        providers: [Both],
      }),
    );
    const { first, second } = app.get(Both);
    await using a = await first.acquire('key', { waitMs: 0 });
    await using b = await second.acquire('key', { waitMs: 0 });
    expect([a.isValid(), b.isValid()]).toEqual([true, true]);
    expect(await second.inspect('key')).toMatchObject({ instance: 'two' });
    expect(getLockServiceToken('reports')).toBe('reportsLockService');
  });

  it('reports all wrong options at once', async () => {
    const wrong = {
      backend: { type: 'redis' },
      namespace: '',
      defaults: { leaseMs: -1, waitMs: NaN, renew: 'yes', ttl: 1 },
      shutdown: { drainMs: '10s' },
      prefix: 'x',
    } as unknown as DistributedLockModuleOptions;
    const error: unknown = await booted(DistributedLockModule.forRoot(wrong)).catch(
      (thrown: unknown) => thrown,
    );
    expect(error).toBeInstanceOf(LockConfigError);
    const { message } = error as LockConfigError;
    for (const name of [
      'backend',
      'namespace',
      'leaseMs',
      'waitMs',
      'renew',
      "'ttl'",
      'drainMs',
      "'prefix'",
    ]) {
      expect(message).toContain(name);
    }
  });

  it('does not boot twice under one name', async () => {
    const twice = [memoryBackend(), memoryBackend()].map((backend) =>
      DistributedLockModule.forRoot({ backend }),
    );
    await expect(booted(...twice)).rejects.toThrow(
      /Expected one DistributedLockModule without a name.*found 2/,
    );
  });

  it.each([
    ['of other options', () => DistributedLockModule.forRoot({ backend: memoryBackend() })],
    ['of one factory', () => DistributedLockModule.forRootAsync({ useFactory: backendOnly })],
  ])('does not boot twice %s with moduleIdGeneratorAlgorithm deep-hash', async (_, forRoot) => {
    const options = { moduleIdGeneratorAlgorithm: 'deep-hash', logger: false, abortOnError: false } as const;
    @Module({})
    class App {}
    const create = (...imports: DynamicModule[]) =>
      NestFactory.createApplicationContext({ module: App, imports }, options);
    await expect(create(forRoot(), forRoot())).rejects.toThrow(/Expected one DistributedLockModule.*found 2/);
    const same = forRoot();
    @Module({})
    class Feature {}
    closing.push(await create(same, { module: Feature, imports: [same] }));
  });

  it('boots beside a strict proxy, which throws when an unlisted property is read', async () => {
    // Nest itself reads these string properties of every provider.
    const strict = new Proxy(
      {},
      {
        get(_, name) {
          if (typeof name === 'symbol') throw new Error(`${String(name)} is not listed`);
          return undefined;
        },
        has: () => false,
      },
    );
    const app = await booted(DistributedLockModule.forRoot(backendOnly()), {
      module: Settings,
      providers: [
        { provide: 'value', useValue: strict },
        { provide: 'made', useFactory: () => strict },
      ],
    });
    expect(await app.get(LockService).withLock('key', () => 'ran')).toBe('ran');
  });

  it('may be imported in several places as the same one', async () => {
    const lockModule = DistributedLockModule.forRoot({ backend: memoryBackend() });
    @Module({ imports: [lockModule] })
    class Feature {}
    await expect(booted(lockModule, Feature)).resolves.toBeDefined();
  });

  it('refuses a value that is no options object, and a class that creates none', async () => {
    await expect(booted(DistributedLockModule.forRoot(undefined as never))).rejects.toThrow(/backend/);
    await expect(booted(DistributedLockModule.forRoot({ backend: undefined as never }))).rejects.toThrow(
      /expected backend to be one of redisBackend.*, got undefined: backend has no value yet/,
    );
    expect(() => DistributedLockModule.forRootAsync(undefined as never)).toThrow(LockConfigError);
    class Nothing {
      readonly options = 'none';
    }
    const made = DistributedLockModule.forRootAsync({ useClass: Nothing as unknown as typeof Settings });
    await expect(booted(made)).rejects.toThrow(/createDistributedLockOptions/);
  });

  it('refuses a name from a factory, which comes too late', async () => {
    const useFactory = () => ({ backend: memoryBackend(), name: 'late' });
    await expect(booted(DistributedLockModule.forRootAsync({ useFactory }))).rejects.toThrow(
      /no option 'name'/,
    );
  });

  it('reports a missing dependency of the factory by its index in `inject`', async () => {
    const useFactory = () => ({ backend: memoryBackend() });
    await expect(
      booted(DistributedLockModule.forRootAsync({ inject: [Settings], useFactory })),
    ).rejects.toThrow(/Settings at index \[0\]/);
  });

  it('reports a module that is missing in `imports` without naming an internal module', async () => {
    const made = DistributedLockModule.forRootAsync({ inject: [Settings], useFactory: backendOnly });
    const refused = booted(made);
    await expect(refused).rejects.toThrow(/available in the DistributedLockModule/);
    await expect(refused).rejects.not.toThrow(/LockCoreModule/);
  });

  it('refuses a namespace without a value, which would be that of every application', async () => {
    const options = { backend: memoryBackend(), namespace: undefined };
    const reason =
      /expected namespace to be the name of your application, got undefined: namespace has no value, probably because an environment variable is not set/;
    const { forRoot, forRootAsync } = DistributedLockModule;
    // As `namespace: process.env.APP_NAME` compiles.
    await expect(booted(forRoot(options as never))).rejects.toThrow(reason);
    await expect(booted(forRootAsync({ useFactory: () => options as never }))).rejects.toThrow(reason);
    await expect(booted(forRoot(backendOnly()))).resolves.toBeDefined();
  });

  it('names all options that it knows if one is unknown', async () => {
    const options = { backend: memoryBackend(), nmae: 'shop' };
    const reason = /no option 'nmae'; it knows backend, .*, jobs, name, isGlobal/;
    await expect(booted(DistributedLockModule.forRoot(options))).rejects.toThrow(reason);
  });

  it('refuses the class without options, unless it is imported with options elsewhere', async () => {
    await expect(booted(DistributedLockModule)).rejects.toThrow(
      'DistributedLockModule is imported without options. Write DistributedLockModule.forRoot({ backend: … })',
    );
    @Module({ imports: [DistributedLockModule] })
    class ItemsModule {}
    const app = await booted(ItemsModule, DistributedLockModule.forRoot(backendOnly()));
    expect(app.get(LockService)).toBeInstanceOf(LockService);
  });

  it.each<[string, object, string]>([
    ['an option of locks', { backend: memoryBackend(), leaseMs: 1_000 }, 'write defaults: { leaseMs }'],
    ['an option of the shutdown', { backend: memoryBackend(), drainMs: 1 }, 'write shutdown: { drainMs }'],
    ['a function', { backend: memoryBackend }, 'got a function: call it, as in redisBackend({ url })'],
    ['a client', { backend: { duplicate: () => undefined } }, 'write redisBackend({ client })'],
    ['a data source', { backend: { initialize: () => undefined } }, 'write typeormBackend({ dataSource })'],
    ['a factory', { useFactory: backendOnly }, 'write DistributedLockModule.forRootAsync({ useFactory })'],
    ['a url', { url: 'redis://localhost' }, 'write backend: redisBackend({ url })'],
    ['a data source of options', { dataSource: {} }, 'write backend: typeormBackend({ dataSource })'],
  ])('says where %s belongs', async (_, options, hint) => {
    const given = options as DistributedLockModuleOptions;
    await expect(booted(DistributedLockModule.forRoot(given))).rejects.toThrow(hint);
  });

  it('refuses async options that it does not know', () => {
    const options = { namespace: 'shop', useFactory: () => ({ backend: memoryBackend() }) };
    expect(() => DistributedLockModule.forRootAsync(options)).toThrow(/no option 'namespace'/);
  });

  it('says that options without a factory belong to forRoot()', () => {
    const options = { backend: memoryBackend(), inject: [] };
    expect(() => DistributedLockModule.forRootAsync(options)).toThrow(
      "no option 'backend'; return it from useFactory, or write DistributedLockModule.forRoot() if there is no factory",
    );
  });

  it('says that useFactory is a function', () => {
    const options = { useFactory: { backend: memoryBackend() } } as unknown as { useFactory: () => never };
    expect(() => DistributedLockModule.forRootAsync(options)).toThrow(
      'expected useFactory to be a function, got { backend }. Write useFactory: () => ({ backend: … }).',
    );
  });

  it.each([
    ['at once', ({ backend }: Settings) => ({ backend })],
    ['later', async ({ backend }: Settings) => ({ backend })],
  ])('names inject if a factory without it throws %s, and keeps the cause', async (_, useFactory) => {
    const failure = await booted(DistributedLockModule.forRootAsync({ useFactory })).catch(
      (error: unknown) => error,
    );
    expect(failure).toBeInstanceOf(LockConfigError);
    const { message, cause } = failure as LockConfigError;
    expect(message).toMatch(
      /useFactory threw "Cannot destructure.*has 1 parameter, but inject names 0 providers.*inject: \[/,
    );
    expect(cause).toBeInstanceOf(TypeError);
  });

  it('leaves the error of a factory unchanged if inject names all of its parameters', async () => {
    const reason = new TypeError('not yet');
    const useFactory = (_: Settings) => Promise.reject(reason);
    const module = { imports: [SettingsModule], inject: [Settings], useFactory };
    await expect(booted(DistributedLockModule.forRootAsync(module))).rejects.toBe(reason);
  });

  it('says how a test replaces the module if LockTestingModule is imported beside it', async () => {
    await expect(
      booted(DistributedLockModule.forRoot(backendOnly()), LockTestingModule.forRoot()),
    ).rejects.toThrow(
      /found 2, and one is LockTestingModule.*\.overrideModule\(DistributedLockModule\)\.useModule\(LockTestingModule\.forRoot\(\)\)/,
    );
  });

  it('reports one error for a lease that is no number', async () => {
    const options = { backend: memoryBackend(), defaults: { leaseMs: NaN } };
    await expect(booted(DistributedLockModule.forRoot(options))).rejects.toThrow(
      'Wrong DistributedLockModule options: expected defaults.leaseMs to be a whole number of milliseconds from 10 to ' +
        '2147483647, got NaN.',
    );
  });

  it.each<[string, unknown]>([
    ['nothing', undefined],
    ['nothing', null],
    ['the backend itself', memoryBackend()],
  ])('says what a factory must return if it returns %s', async (got, returned) => {
    const made = DistributedLockModule.forRootAsync({ useFactory: () => returned as never });
    await expect(booted(made)).rejects.toThrow(`expected a factory to return { backend: … }, got ${got}.`);
  });

  it('refuses async options without a factory, or with two', () => {
    expect(() => DistributedLockModule.forRootAsync({})).toThrow(LockConfigError);
    expect(() => DistributedLockModule.forRootAsync({ useClass: Settings, useExisting: Settings })).toThrow(
      /got 2/,
    );
  });

  it('does not boot with an error that no retry can correct', async () => {
    class Unfit extends MemoryBackend {
      check(): Promise<void> {
        return Promise.reject(new LockConfigError('expected a table, found none'));
      }
    }
    await expect(booted(DistributedLockModule.forRoot({ backend: new Unfit() }))).rejects.toThrow(
      /found none/,
    );
  });

  it.each([
    ['refuses', () => Promise.reject(new Error('ECONNREFUSED'))],
    ['is silent', () => new Promise<void>(() => undefined)],
  ])('boots when the store %s', async (_, check) => {
    class Down extends MemoryBackend {
      check = check;
    }
    const app = await booted(DistributedLockModule.forRoot({ backend: new Down() }));
    expect(await app.get(LockService).withLock('key', () => 'works')).toBe('works');
  });
});

describe('LockService refuses', () => {
  const service = async () =>
    (await booted(DistributedLockModule.forRoot({ backend: memoryBackend() }))).get(LockService);

  it.each([
    ['', /1 to 512 characters/],
    ['k'.repeat(513), /1 to 512 characters.*513 characters\..*hash/],
    [42, /got 42/],
    [undefined, /got undefined/],
    ['a\0b', /NUL/],
    ['\ud800', /well-formed/],
  ])('the key %j', async (key, message) => {
    const locks = await service();
    const wrong = key as string;
    for (const ask of [
      () => locks.acquire(wrong),
      () => locks.tryAcquire(wrong),
      () => locks.inspect(wrong),
    ]) {
      const refused = ask();
      await expect(refused).rejects.toThrow(LockConfigError);
      await expect(refused).rejects.toThrow(message);
    }
  });

  it.each([
    [{ waitMs: -1 }, /waitMs/],
    [{ waitMs: '1s' }, /waitMs/],
    [{ leaseMs: 0 }, /leaseMs/],
    [{ leaseMs: Infinity }, /leaseMs/],
    [{ signal: {} }, /AbortSignal/],
    [{ ttl: 5 }, /no option 'ttl'/],
    ['fast', /object/],
  ])('the options %j', async (options, message) => {
    const locks = await service();
    await expect(locks.acquire('key', options as object)).rejects.toThrow(message);
  });

  it('milliseconds in place of the options, and says how to write a lease', async () => {
    const locks = await service();
    const lease = 5_000 as unknown as AcquireOptions;
    for (const refused of [
      locks.acquire('key', lease),
      locks.tryAcquire('key', lease),
      locks.withLock('key', lease, () => undefined),
    ]) {
      await expect(refused).rejects.toThrow(LockConfigError);
      await expect(refused).rejects.toThrow(
        'expected options to be an object, got 5000; write { leaseMs: 5000 }.',
      );
    }
  });

  it('a text in place of the options of list(), and says how to write a prefix', async () => {
    const locks = await service();
    await expect(locks.list('order:' as unknown as ListOptions)).rejects.toThrow(
      "got 'order:'; write { prefix: … }",
    );
  });

  it('work that is not a function', async () => {
    const locks = await service();
    await expect(locks.withLock('key', {} as never)).rejects.toThrow(/function/);
    const work = () => 'done';
    await expect(locks.withLock('key', work as never, { waitMs: 0 } as never)).rejects.toThrow(
      /to be a function, got .*Options come before it: withLock\(key, options, work\)/,
    );
  });

  it('a forced release without a fencing token', async () => {
    const locks = await service();
    await expect(locks.forceRelease('key', {} as never)).rejects.toThrow(/fencingToken/);
  });
});
