import type { FactoryProvider, InjectionToken, Provider } from '@nestjs/common';
import { LockConfigError } from './core/errors.js';
import type { ResolvedModuleOptions } from './distributed-lock.options.js';

/** The checked options, from whatever the user gave. */
export const RESOLVED_OPTIONS = Symbol('DistributedLockModule options');

/** What a `LockTestingModule` uses in the place of the modules of the application. */
export interface StandIn {
  /** The name of the module that it replaces as a whole. Modules with other names use its store alone. */
  readonly name: string | undefined;
  readonly options: ResolvedModuleOptions;
  readonly instances: ReadonlyMap<InjectionToken, unknown>;
  /** What the modules with other names made. */
  readonly others: unknown[];
}

export const STAND_IN = Symbol.for('nestjs-distributed-lock:stand-in');

/**
 * Whether `DistributedLockModule` is still itself: `overrideModule()` replaces a class in `imports`, and never what
 * `forRoot()` returned. So each module imports that class, and looks whether it is still there.
 */
export const IS_ITSELF = Symbol.for('nestjs-distributed-lock:is-itself');

/** Makes the provider of a module use the stand-in, where a test has replaced `DistributedLockModule`. */
export function replaceable(provider: Provider, name: string | undefined): Provider {
  if (!isFactory(provider)) return provider;
  const { provide, useFactory, inject = [] } = provider;
  return {
    provide,
    useFactory: async (...injected: unknown[]) => {
      const dependencies = injected.slice(0, inject.length);
      const [isItself, standIn] = injected.slice(inject.length) as [unknown, StandIn | undefined];
      // A LockTestingModule beside it is another module, and takes nothing away from it.
      if (isItself === true) return (await useFactory(...dependencies)) as unknown;
      if (!standIn) throw unknownModule();
      // What is not among them has nothing left to do.
      if (standIn.name === name) return standIn.instances.get(provide) ?? {};
      if (provide === RESOLVED_OPTIONS) return standIn.options;
      const made = (await useFactory(...dependencies)) as unknown;
      standIn.others.push(made);
      return made;
    },
    // The user's own come first: Nest tells by its number which one is missing.
    inject: [...inject, { token: IS_ITSELF, optional: true }, { token: STAND_IN, optional: true }],
  };
}

/** The stand-in that consists of these providers. */
export function standInOf(name: string | undefined, providers: readonly Provider[]): Provider {
  const tokens = providers.filter(isFactory).map(({ provide }) => provide);
  return {
    provide: STAND_IN,
    useFactory: (options: ResolvedModuleOptions, ...instances: unknown[]): StandIn => ({
      ...{ name, options, others: [] },
      instances: new Map(tokens.map((token, index) => [token, instances[index]])),
    }),
    inject: [RESOLVED_OPTIONS, ...tokens],
  };
}

export const isFactory = (provider: Provider): provider is FactoryProvider => 'useFactory' in provider;

const unknownModule = () =>
  new LockConfigError(
    'overrideModule(DistributedLockModule): expected useModule(LockTestingModule.forRoot()), got another module. To ' +
      'replace the service alone, use overrideProvider(LockService).',
  );
