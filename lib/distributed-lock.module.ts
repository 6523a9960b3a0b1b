import {
  type DynamicModule,
  Inject,
  type InjectionToken,
  Module,
  type OnModuleInit,
  type Provider,
} from '@nestjs/common';
import { ModuleRef } from '@nestjs/core';
import { LockConfigError } from './core/errors.js';
import { formatReason, formatValue } from './core/format.js';
import { OptionErrors } from './core/option-errors.js';
import {
  BELONGS_INTO_FACTORY,
  type DistributedLockFactoryOptions,
  type DistributedLockModuleAsyncOptions,
  type DistributedLockModuleOptions,
  type DistributedLockOptionsFactory,
  checkModuleIdentity,
  resolveModuleOptions,
} from './distributed-lock.options.js';
import { withScopeCheck } from './module/module-scope-check.js';
import { LockCoreModule, type LockCoreParts } from './module/lock-core.module.js';
import { IS_ORIGINAL_MODULE, RESOLVED_OPTIONS, makeOverridable } from './module/module-override.js';

/** Provides `LockService` and everything that the decorators need. Import it once, in the root module. */
@Module({ providers: [{ provide: IS_ORIGINAL_MODULE, useValue: true }], exports: [IS_ORIGINAL_MODULE] })
export class DistributedLockModule implements OnModuleInit {
  readonly #moduleRef: ModuleRef;

  constructor(@Inject(ModuleRef) moduleRef: ModuleRef) {
    this.#moduleRef = moduleRef;
  }

  /** Wrong options fail the boot. One `LockConfigError` lists all of them. */
  static forRoot(options: DistributedLockModuleOptions): DynamicModule {
    const { name, isGlobal, ...rest } = { ...options };
    const resolved = {
      provide: RESOLVED_OPTIONS,
      useFactory: () => resolveModuleOptions(rest, IDENTITY_NAMES),
    };
    return createDynamicModule({ name, isGlobal }, { providers: [resolved] });
  }

  /**
   * Like `forRoot`, with options from a factory or a provider. Pass `name` and `isGlobal` here, because Nest needs them
   * before it calls the factory. The options are created once: the boot fails with a `LockConfigError` if they depend
   * on a request-scoped provider, directly or indirectly.
   *
   * @throws LockConfigError for an unknown option, or unless exactly one of `useFactory`, `useClass` and `useExisting`
   *   is given
   */
  static forRootAsync(options: DistributedLockModuleAsyncOptions): DynamicModule {
    const { name, isGlobal, imports = [] } = { ...options };
    const errors = new OptionErrors();
    errors.object('options', options, ASYNC_OPTIONS, BELONGS_INTO_FACTORY);
    errors.throwIfAny('Wrong options of DistributedLockModule.forRootAsync()');
    return createDynamicModule(
      { name, isGlobal },
      { imports, providers: createAsyncProviders({ ...options }) },
    );
  }

  /** @throws LockConfigError if the class is imported, and no module calls `forRoot` or `forRootAsync` */
  onModuleInit(): void {
    try {
      this.#moduleRef.get(LockCoreModule, { strict: false });
    } catch (cause) {
      throw new LockConfigError(
        'DistributedLockModule is imported without options. Write DistributedLockModule.forRoot({ backend: … }) in the ' +
          'imports of the root module.',
        { cause },
      );
    }
  }
}

const IDENTITY_NAMES = ['name', 'isGlobal'];
const ASYNC_OPTIONS = [...IDENTITY_NAMES, 'imports', 'inject', 'useFactory', 'useClass', 'useExisting'];

interface ModuleIdentity {
  readonly name: string | undefined;
  readonly isGlobal: boolean | undefined;
}

function createDynamicModule({ name, isGlobal = true }: ModuleIdentity, parts: LockCoreParts): DynamicModule {
  checkModuleIdentity({ name, isGlobal });
  const imports = [DistributedLockModule, ...(parts.imports ?? [])];
  const core = LockCoreModule.register(name, { ...parts, imports });
  const providers = core.providers?.map((provider) => makeOverridable(provider, name)) ?? [];
  core.providers = withScopeCheck(providers, name);
  return {
    module: DistributedLockModule,
    global: isGlobal,
    imports: [core],
    // Makes IS_ORIGINAL_MODULE true only if the imported class itself is still in place: a test may have replaced it.
    providers: [{ provide: IS_ORIGINAL_MODULE, useValue: false }],
    exports: [core],
  };
}

const createOptionsProvider = (
  createOptions: (
    ...dependencies: unknown[]
  ) => DistributedLockFactoryOptions | Promise<DistributedLockFactoryOptions>,
  inject: DistributedLockModuleAsyncOptions['inject'] = [],
): Provider => ({
  provide: RESOLVED_OPTIONS,
  useFactory: async (...dependencies: unknown[]) =>
    resolveModuleOptions(await createOptions(...dependencies)),
  inject,
});

type OptionsFactory = NonNullable<DistributedLockModuleAsyncOptions['useFactory']>;

/** The factory; if it throws because `inject` names fewer providers than it has parameters, the error says so. */
const withInjectCheck =
  (useFactory: OptionsFactory, inject: readonly unknown[] = []): OptionsFactory =>
  async (...dependencies: unknown[]) => {
    try {
      return await useFactory(...dependencies);
    } catch (cause) {
      if (useFactory.length <= inject.length || cause instanceof LockConfigError) throw cause;
      throw missingInjectError(useFactory.length, inject.length, cause);
    }
  };

const missingInjectError = (parameters: number, injected: number, cause: unknown) =>
  new LockConfigError(
    `DistributedLockModule.forRootAsync(): useFactory threw "${formatReason(cause)}". It has ` +
      `${parameters} parameter${parameters === 1 ? '' : 's'}, but inject names ${injected} provider${injected === 1 ? '' : 's'}, so ` +
      `the others are undefined. Name one for each parameter, such as inject: [ConfigService].`,
    { cause },
  );

function createAsyncProviders({
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
  if (useFactory !== undefined && typeof useFactory !== 'function') {
    throw new LockConfigError(
      `DistributedLockModule.forRootAsync(): expected useFactory to be a function, got ${formatValue(useFactory)}. Write useFactory: () => ({ backend: … }).`,
    );
  }
  if (useFactory) return [createOptionsProvider(withInjectCheck(useFactory, inject), inject)];
  const createOptions = (instance: unknown) => {
    const factory = instance as Partial<DistributedLockOptionsFactory>;
    if (typeof factory.createDistributedLockOptions === 'function')
      return factory.createDistributedLockOptions();
    throw new LockConfigError(
      'DistributedLockModule.forRootAsync(): expected a class with the method createDistributedLockOptions().',
    );
  };
  if (useClass) return [useClass, createOptionsProvider(createOptions, [useClass])];
  return [createOptionsProvider(createOptions, [useExisting as InjectionToken])];
}
