import { type DiscoveryService, MetadataScanner, type ModulesContainer } from '@nestjs/core';
import { type Method, type MethodMetadata, readMethodMetadata } from './decorated-method.js';

type Instance = Readonly<Record<string, Method>>;

/** A method of a provider or controller. */
export interface FoundMethod<Value> {
  /** The instance; for request-scoped and transient classes, their prototype. */
  readonly instance: Instance;
  /** Whether Nest creates exactly one instance. */
  readonly isStatic: boolean;
  /** The object that defines the method: a prototype or the instance. */
  readonly target: object;
  readonly name: string;
  readonly method: Method;
  /** What decorators have stored about the method, the topmost last. */
  readonly metadata: readonly MethodMetadata<Value>[];
}

interface MethodSearch {
  /** The token of the property that the decorator injects. */
  readonly token: symbol;
  /** The key of the metadata. */
  readonly key: symbol;
  /** Instances that are left out. Those that are found are added: one instance may be provided under several tokens. */
  readonly visited?: WeakSet<object>;
}

export type ProviderSource = Pick<DiscoveryService, 'getProviders' | 'getControllers'>;

/** Adds the guards, interceptors, pipes and filters that Nest creates for its own decorators. */
export const withEnhancers = (discovery: ProviderSource, modules: ModulesContainer): ProviderSource => ({
  getProviders: () => [
    ...discovery.getProviders(),
    ...[...modules.values()].flatMap(({ injectables }) => [...injectables.values()]),
  ],
  getControllers: () => discovery.getControllers(),
});

/** Finds the methods, including inherited ones, of all instances of the application that have a method with this decorator. */
export function* findMethods<Value>(
  discovery: ProviderSource,
  { token, key, visited = new WeakSet() }: MethodSearch,
): Generator<FoundMethod<Value>> {
  const scanner = new MetadataScanner();
  for (const wrapper of [...discovery.getProviders(), ...discovery.getControllers()]) {
    const isStatic = wrapper.isDependencyTreeStatic() && !wrapper.isTransient;
    const instance = (isStatic ? wrapper.instance : wrapper.metatype?.prototype) as Instance | null;
    if (typeof instance !== 'object' || instance === null || !(token in instance)) continue;
    if (visited.has(instance)) continue;
    visited.add(instance);
    const prototype = isStatic ? (Object.getPrototypeOf(instance) as object) : instance;
    for (const name of scanner.getAllMethodNames(prototype)) {
      const method = instance[name];
      if (!method) continue;
      const target = ownerOf(instance, prototype, name);
      yield {
        instance,
        isStatic,
        target,
        name,
        method,
        metadata: readMethodMetadata(key, { target, name, method }),
      };
    }
  }
}

/** A constructor that binds a method, as `this.run = this.run.bind(this)`, does not override it. */
function ownerOf(instance: Instance, prototype: object, name: string): object {
  if (Object.hasOwn(instance, name) && instance[name]?.name !== `bound ${name}`) return instance;
  let owner: object | null = prototype;
  while (owner && !Object.hasOwn(owner, name)) owner = Object.getPrototypeOf(owner) as object | null;
  return owner ?? instance;
}
