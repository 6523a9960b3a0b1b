import type { FactoryProvider, InjectionToken, Provider } from '@nestjs/common';
import { LockConfigError } from '../core/errors.js';
import type { ResolvedModuleOptions } from '../distributed-lock.options.js';

/** The checked options, from whatever the user gave. */
export const RESOLVED_OPTIONS = Symbol('DistributedLockModule options');

/** What a `LockTestingModule` uses in the place of the modules of the application. */
export interface ModuleOverride {
  /** The name of the module that it replaces as a whole. Modules with other names use its store alone. */
  readonly name: string | undefined;
  readonly options: ResolvedModuleOptions;
  readonly instances: ReadonlyMap<InjectionToken, unknown>;
  /** What the modules with other names made. */
  readonly otherModuleInstances: unknown[];
}

export const MODULE_OVERRIDE = Symbol.for('nestjs-distributed-lock:stand-in');

/**
 * Whether `DistributedLockModule` is still itself: `overrideModule()` replaces a class in `imports`, and never what
 * `forRoot()` returned. So each module imports that class, and looks whether it is still there.
 */
export const IS_ORIGINAL_MODULE = Symbol.for('nestjs-distributed-lock:is-itself');

/** Makes the provider of a module use the stand-in, where a test has replaced `DistributedLockModule`. */
export function makeOverridable(provider: Provider, name: string | undefined): Provider {
  if (!isFactoryProvider(provider)) return provider;
  const { provide, useFactory, inject = [] } = provider;
  return {
    provide,
    useFactory: async (...injected: unknown[]) => {
      const dependencies = injected.slice(0, inject.length);
      const [isOriginal, moduleOverride] = injected.slice(inject.length) as [
        unknown,
        ModuleOverride | undefined,
      ];
      // A LockTestingModule beside it is another module, and takes nothing away from it.
      if (isOriginal === true) return (await useFactory(...dependencies)) as unknown;
      if (!moduleOverride) throw unknownModuleError();
      // What is not among them has nothing left to do.
      if (moduleOverride.name === name) return moduleOverride.instances.get(provide) ?? {};
      if (provide === RESOLVED_OPTIONS) return moduleOverride.options;
      const created = (await useFactory(...dependencies)) as unknown;
      moduleOverride.otherModuleInstances.push(created);
      return created;
    },
    // The user's own come first: Nest tells by its number which one is missing.
    inject: [
      ...inject,
      { token: IS_ORIGINAL_MODULE, optional: true },
      { token: MODULE_OVERRIDE, optional: true },
    ],
  };
}

/** The stand-in that consists of these providers. */
export function createModuleOverride(name: string | undefined, providers: readonly Provider[]): Provider {
  const tokens = providers.filter(isFactoryProvider).map(({ provide }) => provide);
  return {
    provide: MODULE_OVERRIDE,
    useFactory: (options: ResolvedModuleOptions, ...instances: unknown[]): ModuleOverride => ({
      ...{ name, options, otherModuleInstances: [] },
      instances: new Map(tokens.map((token, index) => [token, instances[index]])),
    }),
    inject: [RESOLVED_OPTIONS, ...tokens],
  };
}

export const isFactoryProvider = (provider: Provider): provider is FactoryProvider =>
  'useFactory' in provider;

const unknownModuleError = () =>
  new LockConfigError(
    'overrideModule(DistributedLockModule): expected useModule(LockTestingModule.forRoot()), got another module. To ' +
      'replace the service alone, use overrideProvider(LockService).',
  );
