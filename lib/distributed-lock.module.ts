import { type DynamicModule, type InjectionToken, Module, type Provider } from '@nestjs/common';
import { LockConfigError } from './core/errors.js';
import {
  type DistributedLockFactoryOptions,
  type DistributedLockModuleAsyncOptions,
  type DistributedLockModuleOptions,
  type DistributedLockOptionsFactory,
  resolveModuleOptions,
} from './distributed-lock.options.js';
import { LockCoreModule, RESOLVED_OPTIONS } from './lock-core.module.js';

/** Brings `LockService`, and what `@Locked` and `@SingletonCron` need. Import it once, in the root module. */
@Module({})
export class DistributedLockModule {
  /** Wrong options are told at boot, all of them in one `LockConfigError`. */
  static forRoot(options: DistributedLockModuleOptions): DynamicModule {
    return around(
      options,
      LockCoreModule.register(options.name, { providers: [resolvedFrom(() => options)] }),
    );
  }

  /** Like `forRoot`, with options that are made by providers; `name` and `isGlobal` must be known before. */
  static forRootAsync(options: DistributedLockModuleAsyncOptions): DynamicModule {
    const { name, imports = [] } = options;
    return around(options, LockCoreModule.register(name, { imports, providers: asyncProviders(options) }));
  }
}

const around = ({ isGlobal = true }: { isGlobal?: boolean }, core: DynamicModule): DynamicModule => ({
  module: DistributedLockModule,
  global: isGlobal,
  imports: [core],
  exports: [core],
});

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
  const ask = (factory: unknown) => (factory as DistributedLockOptionsFactory).createDistributedLockOptions();
  if (useClass) return [useClass, resolvedFrom(ask, [useClass])];
  return [resolvedFrom(ask, [useExisting as InjectionToken])];
}
