import { type DynamicModule, type InjectionToken, Module, type Provider } from '@nestjs/common';
import { withBootCheck } from './boot-check.js';
import { LockConfigError } from './core/errors.js';
import { Faults } from './core/faults.js';
import {
  type DistributedLockFactoryOptions,
  type DistributedLockModuleAsyncOptions,
  type DistributedLockModuleOptions,
  type DistributedLockOptionsFactory,
  checkModuleIdentity,
  resolveModuleOptions,
} from './distributed-lock.options.js';
import { LockCoreModule, type LockCoreParts } from './lock-core.module.js';
import { IS_ITSELF, RESOLVED_OPTIONS, replaceable } from './stand-in.js';

/** Brings `LockService`, and what `@Locked` and `@SingletonCron` need. Import it once, in the root module. */
@Module({ providers: [{ provide: IS_ITSELF, useValue: true }], exports: [IS_ITSELF] })
export class DistributedLockModule {
  /** Wrong options are told at boot, all of them in one `LockConfigError`. */
  static forRoot(options: DistributedLockModuleOptions): DynamicModule {
    const { name, isGlobal, ...rest } = { ...options };
    return around({ name, isGlobal }, { providers: [resolvedFrom(() => rest)] });
  }

  /**
   * Like `forRoot`, with options that are made by providers; `name` and `isGlobal` must be known before. The options are made
   * once: the boot fails with a `LockConfigError` if they depend on a request-scoped provider, directly or not.
   */
  static forRootAsync(options: DistributedLockModuleAsyncOptions): DynamicModule {
    const { name, isGlobal, imports = [] } = { ...options };
    const faults = new Faults();
    faults.object('options', options, ASYNC_OPTIONS);
    faults.throwIfAny('Wrong options of DistributedLockModule.forRootAsync()');
    return around({ name, isGlobal }, { imports, providers: asyncProviders({ ...options }) });
  }
}

const ASYNC_OPTIONS = ['name', 'isGlobal', 'imports', 'inject', 'useFactory', 'useClass', 'useExisting'];

interface Identity {
  readonly name: string | undefined;
  readonly isGlobal: boolean | undefined;
}

function around({ name, isGlobal = true }: Identity, parts: LockCoreParts): DynamicModule {
  checkModuleIdentity({ name, isGlobal });
  const imports = [DistributedLockModule, ...(parts.imports ?? [])];
  const core = LockCoreModule.register(name, { ...parts, imports });
  const providers = core.providers?.map((provider) => replaceable(provider, name)) ?? [];
  core.providers = withBootCheck(providers, name);
  return {
    module: DistributedLockModule,
    global: isGlobal,
    imports: [core],
    // The one that counts is that of the class, which a test may have replaced.
    providers: [{ provide: IS_ITSELF, useValue: false }],
    exports: [core],
  };
}

const resolvedFrom = (
  make: (
    ...dependencies: unknown[]
  ) => DistributedLockFactoryOptions | Promise<DistributedLockFactoryOptions>,
  inject: DistributedLockModuleAsyncOptions['inject'] = [],
): Provider => ({
  provide: RESOLVED_OPTIONS,
  useFactory: async (...dependencies: unknown[]) => resolveModuleOptions(await make(...dependencies)),
  inject,
});

function asyncProviders({
  useFactory,
  useClass,
  useExisting,
  inject,
}: DistributedLockModuleAsyncOptions): Provider[] {
  const given = [useFactory, useClass, useExisting].filter((way) => way !== undefined);
  if (given.length !== 1) {
    throw new LockConfigError(
      `DistributedLockModule.forRootAsync(): expected exactly one of useFactory, useClass and useExisting, got ${given.length}.`,
    );
  }
  if (useFactory) return [resolvedFrom(useFactory, inject)];
  const ask = (made: unknown) => {
    const factory = made as Partial<DistributedLockOptionsFactory>;
    if (typeof factory.createDistributedLockOptions === 'function')
      return factory.createDistributedLockOptions();
    throw new LockConfigError(
      'DistributedLockModule.forRootAsync(): expected a class with the method createDistributedLockOptions().',
    );
  };
  if (useClass) return [useClass, resolvedFrom(ask, [useClass])];
  return [resolvedFrom(ask, [useExisting as InjectionToken])];
}
