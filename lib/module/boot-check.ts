import type { OnModuleInit, Provider } from '@nestjs/common';
import { ModulesContainer } from '@nestjs/core';
import { LockConfigError } from '../core/errors.js';
import { LockCoreModule } from './lock-core.module.js';
import { getJobRunnerPropertyToken } from '../schedule/job-runner.js';
import { RESOLVED_OPTIONS, isFactoryProvider } from './module-override.js';

type Module = ModulesContainer extends Map<string, infer Value> ? Value : never;
type Wrapper = NonNullable<ReturnType<Module['getProviderByKey']>>;

/**
 * Adds a check to the providers of a module: of options that depend on a request, Nest would make locks for each request,
 * which exclude nobody, and follow no boot and no shutdown. It fails the boot, or else the first request. A module that is
 * loaded lazily fails to load, as Nest tells it of no boot and no shutdown either.
 */
export function withBootCheck(providers: readonly Provider[], name: string | undefined): Provider[] {
  return [
    ...providers.map((provider) =>
      isOptionsProvider(provider) ? withOptionsCheck(provider, name) : provider,
    ),
    {
      provide: BootCheck,
      useFactory: (modules: ModulesContainer) => new BootCheck(modules, name),
      inject: [ModulesContainer],
    },
  ];
}

class BootCheck implements OnModuleInit {
  constructor(
    readonly modules: ModulesContainer,
    readonly name: string | undefined,
  ) {}

  onModuleInit(): void {
    throwIfRequestScoped(this.modules, this.name);
  }
}

const isOptionsProvider = (provider: Provider) =>
  isFactoryProvider(provider) && provider.provide === RESOLVED_OPTIONS;

function withOptionsCheck(provider: Provider, name: string | undefined): Provider {
  if (!isFactoryProvider(provider)) return provider;
  const { provide, useFactory, inject = [] } = provider;
  return {
    provide,
    useFactory: (...dependencies: unknown[]): unknown => {
      const modules = dependencies.at(-1) as ModulesContainer;
      throwIfLazy(modules, name);
      throwIfRequestScoped(modules, name);
      return useFactory(...dependencies.slice(0, -1));
    },
    // Last, as Nest names what is missing by its place in `inject`.
    inject: [...inject, ModulesContainer],
  };
}

const findCoreModules = (modules: ModulesContainer, name: string | undefined) =>
  [...modules.values()].filter(
    (module) => module.metatype === LockCoreModule && module.hasProvider(getJobRunnerPropertyToken(name)),
  );

/** Nest counts how far modules are from the root at boot only. */
function throwIfLazy(modules: ModulesContainer, name: string | undefined): void {
  if (findCoreModules(modules, name).every(({ distance }) => distance > 0)) return;
  throw new LockConfigError(
    `DistributedLockModule: expected it among the imports of a module that is loaded at boot, got it in one that is loaded ` +
      `lazily. Nest calls no lifecycle hooks there: its jobs and elections would never begin, and its locks would not be ` +
      `given back at shutdown. Import it in the root module; what is loaded lazily then uses its locks.`,
  );
}

function throwIfRequestScoped(modules: ModulesContainer, name: string | undefined): void {
  for (const module of findCoreModules(modules, name)) {
    const options = module.getProviderByKey(RESOLVED_OPTIONS);
    if (!options.isDependencyTreeStatic()) throw requestScopedError(options, name);
  }
}

/** The dependencies that lead to what is request-scoped, outermost first. */
function pathToRequest(wrapper: Wrapper, visited = new Set<Wrapper>()): readonly string[] {
  visited.add(wrapper);
  const next = dependenciesOf(wrapper).find((one) => !visited.has(one) && !one.isDependencyTreeStatic());
  return next ? [String(next.name), ...pathToRequest(next, visited)] : [];
}

/** Nest leaves places of optional ones empty. */
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
      `through ${pathToRequest(options).join(', ')}. Each request would have locks of its own, which exclude nobody. Inject ` +
      `providers that Nest makes once. Read what differs between requests in each call, and put it into the key: the tenant ` +
      `as an argument and @Locked('product:{0}'), or withLock() with such a key.`,
  );
}
