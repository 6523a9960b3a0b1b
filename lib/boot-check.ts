import type { OnModuleInit, Provider } from '@nestjs/common';
import { ModulesContainer } from '@nestjs/core';
import { LockConfigError } from './core/errors.js';
import { LockCoreModule } from './lock-core.module.js';
import { jobRunnerSeat } from './schedule/job-runner.js';
import { RESOLVED_OPTIONS, isFactory } from './stand-in.js';

type Module = ModulesContainer extends Map<string, infer Value> ? Value : never;
type Wrapper = NonNullable<ReturnType<Module['getProviderByKey']>>;

/**
 * Adds a check to the providers of a module: of options that depend on a request, Nest would make locks for each request,
 * which exclude nobody, and follow no boot and no shutdown. It fails the boot, or else the first request.
 */
export function withBootCheck(providers: readonly Provider[], name: string | undefined): Provider[] {
  return [
    ...providers.map((provider) => (isOptions(provider) ? checked(provider, name) : provider)),
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

const isOptions = (provider: Provider) => isFactory(provider) && provider.provide === RESOLVED_OPTIONS;

function checked(provider: Provider, name: string | undefined): Provider {
  if (!isFactory(provider)) return provider;
  const { provide, useFactory, inject = [] } = provider;
  return {
    provide,
    useFactory: (modules: ModulesContainer, ...dependencies: unknown[]): unknown => {
      throwIfRequestScoped(modules, name);
      return useFactory(...dependencies);
    },
    inject: [ModulesContainer, ...inject],
  };
}

function throwIfRequestScoped(modules: ModulesContainer, name: string | undefined): void {
  for (const module of modules.values()) {
    if (module.metatype !== LockCoreModule || !module.hasProvider(jobRunnerSeat(name))) continue;
    const options = module.getProviderByKey(RESOLVED_OPTIONS);
    if (!options.isDependencyTreeStatic()) throw requestScoped(options, name);
  }
}

/** The dependencies that lead to what is request-scoped, outermost first. */
function pathToRequest(wrapper: Wrapper, seen = new Set<Wrapper>()): readonly string[] {
  seen.add(wrapper);
  const next = dependenciesOf(wrapper).find((one) => !seen.has(one) && !one.isDependencyTreeStatic());
  return next ? [String(next.name), ...pathToRequest(next, seen)] : [];
}

/** Nest leaves places of optional ones empty. */
function dependenciesOf(wrapper: Wrapper): Wrapper[] {
  const parameters = wrapper.getCtorMetadata() as (Wrapper | undefined)[] | undefined;
  const properties = wrapper.getPropertiesMetadata() as { readonly wrapper: Wrapper }[] | undefined;
  const all = [...(parameters ?? []), ...(properties ?? []).map((property) => property.wrapper)];
  return all.filter((one) => one !== undefined);
}

function requestScoped(options: Wrapper, name: string | undefined): LockConfigError {
  const which = name === undefined ? '' : ` with the name '${name}'`;
  return new LockConfigError(
    `DistributedLockModule.forRootAsync()${which}: expected options that are made once, got options that depend on a request, ` +
      `through ${pathToRequest(options).join(', ')}. Each request would have locks of its own, which exclude nobody. Inject ` +
      `providers that Nest makes once. Read what differs between requests in each call, and put it into the key: the tenant ` +
      `as an argument and @Locked('product:{0}'), or withLock() with such a key.`,
  );
}
