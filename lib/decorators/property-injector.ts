import type { DiscoveryService } from '@nestjs/core';
import { type PropertyToken, clearProperty, writeProperty } from './injected-property.js';

type Services = ReadonlyMap<PropertyToken, unknown>;
export type Wrapper = ReturnType<DiscoveryService['getProviders']>[number];
type Factory = (...dependencies: unknown[]) => unknown;

/** What Nest keeps for one instance of a provider. */
interface Host {
  readonly instance: unknown;
  readonly isResolved?: boolean;
  readonly isPending?: boolean;
  readonly donePromise?: Promise<unknown>;
}

/**
 * Fills the seats of instances that Nest did not make itself: those of `useFactory`, in every scope, and of `useValue`. To
 * be called while Nest makes its instances, so that they are filled before any hook of the application runs, and again, with
 * the same set of providers that are done, when a module was loaded lazily.
 */
export function fillInjectedProperties(
  discovery: DiscoveryService,
  services: Services,
  processed: WeakSet<Wrapper>,
): void {
  const inject = (instance: unknown) => {
    // A frozen instance has no place for them; its locked methods say so when they are called.
    if (!isObject(instance) || !Object.isExtensible(instance)) return;
    for (const [token, service] of services) writeProperty(instance, token, service);
  };
  for (const wrapper of providersAndControllers(discovery)) {
    if (!wrapper.isNotMetatype || processed.has(wrapper)) continue;
    processed.add(wrapper);
    for (const host of hostsOf(wrapper)) {
      if (host.isPending) void host.donePromise?.then(() => inject(host.instance));
      else if (host.isResolved) inject(host.instance);
    }
    if (isFactory(wrapper)) wrapper.metatype = wrapFactory(wrapper.metatype, inject);
  }
}

/** Takes the services of an application that ends away from instances that another application has, too. */
export function clearInjectedProperties(discovery: DiscoveryService, services: Services): void {
  for (const { instance } of providersAndControllers(discovery)) {
    for (const [token, service] of services) {
      if (isObject(instance)) clearProperty(instance, token, service);
    }
  }
}

const providersAndControllers = (discovery: DiscoveryService): Wrapper[] => [
  ...discovery.getProviders(),
  ...discovery.getControllers(),
];

/** Those that are there already, or about to be. */
function hostsOf(wrapper: Wrapper): Host[] {
  if (wrapper.isTransient) return wrapper.getStaticTransientInstances().filter((host) => host !== undefined);
  // Of what Nest makes once, each context has the same.
  return wrapper.isDependencyTreeStatic() ? [wrapper.getInstanceByContextId({ id: 0 })] : [];
}

const isFactory = (wrapper: Wrapper): wrapper is Wrapper & { metatype: Factory } =>
  wrapper.isFactory && typeof wrapper.metatype === 'function';

function wrapFactory(factory: Factory, inject: (instance: unknown) => void): Factory {
  const replacement: Factory = (...dependencies) => {
    const created = factory(...dependencies);
    if (!isThenable(created)) {
      inject(created);
      return created;
    }
    return Promise.resolve(created).then((instance: unknown) => {
      inject(instance);
      return instance;
    });
  };
  // Metadata, name and prototype stay what they were.
  Object.defineProperty(replacement, 'name', { value: factory.name, configurable: true });
  return Object.setPrototypeOf(replacement, factory) as Factory;
}

/** Nest awaits promises of other libraries, too. */
const isThenable = (value: unknown): value is PromiseLike<unknown> =>
  typeof (Object(value) as { readonly then?: unknown }).then === 'function';

const isObject = (value: unknown): value is object => typeof value === 'object' && value !== null;
