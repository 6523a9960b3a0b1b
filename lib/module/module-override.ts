import type { FactoryProvider, InjectionToken, Provider } from '@nestjs/common';
import { LockConfigError } from '../core/errors.js';
import type { ResolvedModuleOptions } from '../distributed-lock.options.js';

/** The provider token of the checked options. */
export const RESOLVED_OPTIONS = Symbol('DistributedLockModule options');

/** What a `LockTestingModule` uses instead of the lock modules of the application. */
export interface ModuleOverride {
  /** The name of the module that is replaced completely. Modules with other names only use its store. */
  readonly name: string | undefined;
  readonly options: ResolvedModuleOptions;
  readonly instances: ReadonlyMap<InjectionToken, unknown>;
  /** What the modules with other names created. */
  readonly otherModuleInstances: unknown[];
}

export const MODULE_OVERRIDE = Symbol.for('nestjs-distributed-lock:stand-in');

/**
 * Whether the class `DistributedLockModule` is still in place. `overrideModule()` replaces a class in `imports`, but never the
 * dynamic module that `forRoot()` returned. So each dynamic module imports the class and checks whether it was replaced.
 */
export const IS_ORIGINAL_MODULE = Symbol.for('nestjs-distributed-lock:is-itself');

/** Makes a provider use the module override if a test has replaced `DistributedLockModule`. */
export function makeOverridable(provider: Provider, name: string | undefined): Provider {
  if (!isFactoryProvider(provider)) return provider;
  const tokens = [IS_ORIGINAL_MODULE, MODULE_OVERRIDE].map((token) => ({ token, optional: true }));
  return wrapFactory(provider, tokens, async (create, isOriginal, given) => {
    const moduleOverride = given as ModuleOverride | undefined;
    // A LockTestingModule that is imported beside this module is a second module and replaces nothing.
    if (isOriginal === true) return await create();
    if (!moduleOverride) throw unknownModuleError();
    // A provider without a replacement (the lifecycle) has nothing to do.
    if (moduleOverride.name === name) return moduleOverride.instances.get(provider.provide) ?? {};
    if (provider.provide === RESOLVED_OPTIONS) return moduleOverride.options;
    const created = await create();
    moduleOverride.otherModuleInstances.push(created);
    return created;
  });
}

/** A provider whose factory runs inside of `wrapper`, which also receives what these tokens provide. */
export function wrapFactory(
  { provide, useFactory, inject = [] }: FactoryProvider,
  tokens: NonNullable<FactoryProvider['inject']>,
  wrapper: (create: () => unknown, ...dependencies: unknown[]) => unknown,
): FactoryProvider {
  return {
    provide,
    useFactory: (...injected: unknown[]): unknown => {
      const create = (): unknown => useFactory(...injected.slice(0, inject.length));
      return wrapper(create, ...injected.slice(inject.length));
    },
    // The user's dependencies come first: if one is missing, Nest reports its index.
    inject: [...inject, ...tokens],
  };
}

/** The module override that consists of these providers. */
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
