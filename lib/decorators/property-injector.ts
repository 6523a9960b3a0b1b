import type { DiscoveryService } from '@nestjs/core';
import { type PropertyToken, clearProperty, writeProperty } from './injected-property.js';

type Services = ReadonlyMap<PropertyToken, unknown>;
export type Wrapper = ReturnType<DiscoveryService['getProviders']>[number];
type Factory = (...dependencies: unknown[]) => unknown;

/** The data that Nest keeps for one instance of a provider. */
interface Host {
  readonly instance: unknown;
  readonly isResolved?: boolean;
  readonly isPending?: boolean;
  readonly donePromise?: Promise<unknown>;
}

/**
 * Fills the injected properties of instances that Nest did not create itself: those of `useFactory`, in every scope, and of
 * `useValue`. Call it while Nest creates its instances, so that the properties are filled before any hook of the application
 * runs. Call it again, with the same `processed` set, after a module was loaded lazily.
 */
export function fillInjectedProperties(
  discovery: DiscoveryService,
  services: Services,
  processed: WeakSet<Wrapper>,
): void {
  const inject = (instance: unknown) => {
    // A frozen instance accepts no properties. Its decorated methods throw a LockConfigError when they are called.
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

/** Removes the services of an application that ends from instances that it shares with another application. */
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

/** The instances that exist already or are being created. */
function hostsOf(wrapper: Wrapper): Host[] {
  if (wrapper.isTransient) return wrapper.getStaticTransientInstances().filter((host) => host !== undefined);
  // Nest creates these once, so every context has the same instance.
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
  // Metadata, name and prototype stay unchanged.
  Object.defineProperty(replacement, 'name', { value: factory.name, configurable: true });
  return Object.setPrototypeOf(replacement, factory) as Factory;
}

/** Nest also awaits promises of other libraries. */
const isThenable = (value: unknown): value is PromiseLike<unknown> =>
  typeof (Object(value) as { readonly then?: unknown }).then === 'function';

const isObject = (value: unknown): value is object => typeof value === 'object' && value !== null;
