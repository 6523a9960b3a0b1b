import type { FactoryProvider, OnModuleInit, Provider } from '@nestjs/common';
import { ModulesContainer } from '@nestjs/core';
import { LockConfigError } from '../core/errors.js';
import { getJobRunnerPropertyToken } from '../schedule/job-runner.js';
import { LockCoreModule } from './lock-core.module.js';
import { RESOLVED_OPTIONS, isFactoryProvider, wrapFactory } from './module-override.js';

type Module = ModulesContainer extends Map<string, infer Value> ? Value : never;
type Wrapper = NonNullable<ReturnType<Module['getProviderByKey']>>;

/**
 * Adds a check to the providers of a module. If the options depended on a request, Nest would create locks for each request:
 * they would not exclude other requests, and would take no part in boot and shutdown. The check fails the boot, or else the
 * first request. A module that is loaded lazily fails to load, because Nest calls no boot and shutdown hooks of it.
 */
export function withScopeCheck(providers: readonly Provider[], name: string | undefined): Provider[] {
  return [
    ...providers.map((provider) =>
      isFactoryProvider(provider) && provider.provide === RESOLVED_OPTIONS
        ? withOptionsCheck(provider, name)
        : provider,
    ),
    {
      provide: Symbol('DistributedLockModule scope check'),
      useFactory: (modules: ModulesContainer): OnModuleInit => ({
        onModuleInit: () => throwIfRequestScoped(modules, name),
      }),
      inject: [ModulesContainer],
    },
  ];
}

const withOptionsCheck = (provider: FactoryProvider, name: string | undefined) =>
  wrapFactory(provider, [ModulesContainer], (create, modules) => {
    throwIfLazy(modules as ModulesContainer, name);
    throwIfRequestScoped(modules as ModulesContainer, name);
    return create();
  });

const findCoreModules = (modules: ModulesContainer, name: string | undefined) =>
  [...modules.values()].filter(
    (module) => module.metatype === LockCoreModule && module.hasProvider(getJobRunnerPropertyToken(name)),
  );

/** Nest computes the distance of modules from the root at boot only, so a lazy module has distance 0. */
function throwIfLazy(modules: ModulesContainer, name: string | undefined): void {
  if (findCoreModules(modules, name).every(({ distance }) => distance > 0)) return;
  throw new LockConfigError(
    `DistributedLockModule: expected it among the imports of a module that is loaded at boot, got it in one that is loaded ` +
      `lazily. Nest calls no lifecycle hooks there: its jobs and elections would never begin, and its locks would not be ` +
      `released at shutdown. Import it in the root module; lazily loaded modules then use its locks.`,
  );
}

function throwIfRequestScoped(modules: ModulesContainer, name: string | undefined): void {
  for (const module of findCoreModules(modules, name)) {
    const options = module.getProviderByKey(RESOLVED_OPTIONS);
    if (!options.isDependencyTreeStatic()) throw requestScopedError(options, name);
  }
}

/** The dependencies that lead to the request-scoped provider, outermost first. */
function pathToRequest(wrapper: Wrapper, visited = new Set<Wrapper>()): readonly string[] {
  visited.add(wrapper);
  const next = dependenciesOf(wrapper).find((one) => !visited.has(one) && !one.isDependencyTreeStatic());
  return next ? [String(next.name), ...pathToRequest(next, visited)] : [];
}

/** Nest leaves the entries of missing optional dependencies empty. */
function dependenciesOf(wrapper: Wrapper): Wrapper[] {
  const parameters = wrapper.getCtorMetadata() as (Wrapper | undefined)[] | undefined;
  const properties = wrapper.getPropertiesMetadata() as { readonly wrapper: Wrapper }[] | undefined;
  const all = [...(parameters ?? []), ...(properties ?? []).map((property) => property.wrapper)];
  return all.filter((one) => one !== undefined);
}

function requestScopedError(options: Wrapper, name: string | undefined): LockConfigError {
  const which = name === undefined ? '' : ` with the name '${name}'`;
  return new LockConfigError(
    `DistributedLockModule.forRootAsync()${which}: expected options that are made once, got options that depend on a request, ` +
      `through ${pathToRequest(options).join(', ')}. Each request would have its own locks, which exclude no other request. ` +
      `Inject providers that Nest creates once. Read settings that differ between requests in each call, and put them into ` +
      `the key: pass the customer as an argument to @Locked('product:{0}'), or call withLock() with such a key.`,
  );
}
