import { type DiscoveryService, MetadataScanner, type ModulesContainer } from '@nestjs/core';
import { LockConfigError } from '../core/errors.js';
import type { Method } from './decorated-method.js';
import type { PropertyToken } from './injected-property.js';

export type ProviderSource = Pick<DiscoveryService, 'getProviders' | 'getControllers'>;

/** Adds the guards, interceptors, pipes and filters that Nest creates for its own decorators. */
export const withEnhancers = (discovery: ProviderSource, modules: ModulesContainer): ProviderSource => ({
  getProviders: () => [
    ...discovery.getProviders(),
    ...[...modules.values()].flatMap(({ injectables }) => [...injectables.values()]),
  ],
  getControllers: () => discovery.getControllers(),
});

export interface DecoratedInstance {
  /** The instance; for request-scoped and transient classes, their prototype. */
  readonly instance: Record<string, Method>;
  /** Whether Nest creates exactly one instance. */
  readonly isStatic: boolean;
  /** All methods, including inherited ones. */
  readonly methods: readonly InstanceMethod[];
}

export interface InstanceMethod {
  readonly name: string;
  readonly method: Method;
  /** The prototype or instance on which the method is defined. */
  readonly owner: object;
}

/**
 * Finds the instances of the application that have this injected property, and so at least one decorated method. An instance
 * that is provided under several tokens is returned several times.
 */
export function* findDecoratedInstances(
  discovery: ProviderSource,
  token: PropertyToken,
): Generator<DecoratedInstance> {
  const scanner = new MetadataScanner();
  for (const wrapper of [...discovery.getProviders(), ...discovery.getControllers()]) {
    const isStatic = wrapper.isDependencyTreeStatic() && !wrapper.isTransient;
    const instance = (isStatic ? wrapper.instance : wrapper.metatype?.prototype) as
      DecoratedInstance['instance'] | null;
    if (typeof instance !== 'object' || instance === null || !(token in instance)) continue;
    const prototype = isStatic ? (Object.getPrototypeOf(instance) as object) : instance;
    const methods = scanner.getAllMethodNames(prototype).flatMap((name) => {
      const method = instance[name];
      return method ? [{ name, method, owner: ownerOf(instance, prototype, name) }] : [];
    });
    yield { instance, isStatic, methods };
  }
}

/** A constructor that binds a method, as `this.run = this.run.bind(this)`, does not override it. */
function ownerOf(instance: DecoratedInstance['instance'], prototype: object, name: string): object {
  if (Object.hasOwn(instance, name) && instance[name]?.name !== `bound ${name}`) return instance;
  let owner: object | null = prototype;
  while (owner && !Object.hasOwn(owner, name)) owner = Object.getPrototypeOf(owner) as object | null;
  return owner ?? instance;
}

/** For a decorator that works only if Nest creates exactly one instance. */
export const scopedProviderError = (location: string, consequence: string) =>
  new LockConfigError(
    `${location}: expected a provider that Nest creates once, got one that is request-scoped or transient${consequence}. Move the ` +
      `method to a separate provider.`,
  );
