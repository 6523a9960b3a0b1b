import { type DiscoveryService, MetadataScanner, type ModulesContainer } from '@nestjs/core';
import type { Method } from './method-replacement.js';
import type { PropertyToken } from './injected-property.js';

export type ProviderSource = Pick<DiscoveryService, 'getProviders' | 'getControllers'>;

/** With what Nest makes for its decorators as well: guards, interceptors, pipes and filters. */
export const withEnhancers = (discovery: ProviderSource, modules: ModulesContainer): ProviderSource => ({
  getProviders: () => [
    ...discovery.getProviders(),
    ...[...modules.values()].flatMap(({ injectables }) => [...injectables.values()]),
  ],
  getControllers: () => discovery.getControllers(),
});

export interface DecoratedInstance {
  /** Or the prototype of instances that Nest makes again and again. */
  readonly instance: Record<string, Method>;
  /** Whether Nest makes it once. */
  readonly isStatic: boolean;
  /** Inherited ones too. */
  readonly methods: readonly InstanceMethod[];
}

export interface InstanceMethod {
  readonly name: string;
  readonly method: Method;
  /** The prototype, or the instance, that has it as its own. */
  readonly owner: object;
}

/**
 * The instances of the application that have this seat, as at least one of their methods is decorated. One that is provided
 * under several tokens comes several times.
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

/** A constructor that binds a method to its instance does not override it. */
function ownerOf(instance: DecoratedInstance['instance'], prototype: object, name: string): object {
  if (Object.hasOwn(instance, name) && instance[name]?.name !== `bound ${name}`) return instance;
  let owner: object | null = prototype;
  while (owner && !Object.hasOwn(owner, name)) owner = Object.getPrototypeOf(owner) as object | null;
  return owner ?? instance;
}
