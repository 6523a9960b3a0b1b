import { Inject } from '@nestjs/common';
import type { DiscoveryService } from '@nestjs/core';
import { LockConfigError } from '../core/errors.js';
import { formatValue } from '../core/format.js';
import { describeVersionConflict } from '../core/package-copies.js';

/** The provider token of a service that decorated classes need. Nest prints its text if no such provider exists. */
export type PropertyToken = symbol;

const formatModuleCall = (name?: string) =>
  name === undefined
    ? 'DistributedLockModule.forRoot()'
    : `DistributedLockModule.forRoot({ name: '${name}' })`;

/** The token of one kind of service. `Symbol.for` makes it the same in all copies of this package, without state here. */
export const getPropertyToken = (service: string, name?: string): PropertyToken =>
  Symbol.for(`${service} - is ${formatModuleCall(name)} imported?`);

/**
 * Declares a property under the token on a class with decorated methods. Nest fills it by its own property injection, so the
 * decorators work in every scope, in subclasses, and with several applications in one process.
 *
 * @throws LockConfigError if the process has loaded two versions of this package
 */
export function injectProperty(prototype: object, token: PropertyToken, location: string): symbol {
  const reason = describeVersionConflict();
  if (reason !== undefined) throw new LockConfigError(`${location}: ${reason}`);
  if (token in prototype) return token;
  Inject(token)(prototype, token);
  Object.defineProperty(prototype, token, {
    configurable: true,
    set(this: object, service: unknown) {
      Object.defineProperty(this, token, { value: service, configurable: true, writable: true });
    },
  });
  return token;
}

/**
 * Returns the service of an instance on which a decorated method was called.
 *
 * @throws LockConfigError if nothing has filled the property, or the object has none
 */
export function readProperty(instance: unknown, token: PropertyToken, location: string): unknown {
  if (isObject(instance) && token in instance) {
    const service = (instance as Record<PropertyToken, unknown>)[token];
    if (service !== undefined) return service;
    const type = instance.constructor.name;
    throw new LockConfigError(
      `${location}: this ${type} was not created by Nest, is used too early (in its constructor, or by another factory during the boot), or is frozen, so it has no locks (${Symbol.keyFor(token)}). Let Nest create it, or in a ` +
        `unit test use Test.createTestingModule({ imports: [LockTestingModule.forRoot()], providers: [${type}] }).`,
    );
  }
  throw new LockConfigError(
    `${location}: expected an instance of its class, got ${formatValue(instance)}, so there are no locks. Call it as a method ` +
      `of its provider. If it was copied to another class, as by applyMixins(), let that class inherit it with extends, or ` +
      `apply the decorator there.`,
  );
}

type Wrapper = ReturnType<DiscoveryService['getProviders']>[number];
type Factory = (...dependencies: unknown[]) => unknown;

/** The data that Nest keeps for one instance of a provider. */
interface Host {
  readonly instance: unknown;
  readonly isResolved?: boolean;
  readonly isPending?: boolean;
  readonly donePromise?: Promise<unknown>;
}

/** Gives the services of an application to instances that Nest did not create itself: those of `useFactory` and `useValue`. */
export class PropertyInjector {
  readonly #discovery: DiscoveryService;
  readonly #services: ReadonlyMap<PropertyToken, unknown>;
  readonly #processed = new WeakSet<Wrapper>();

  constructor(discovery: DiscoveryService, services: ReadonlyMap<PropertyToken, unknown>) {
    this.#discovery = discovery;
    this.#services = services;
  }

  /**
   * Fills the injected properties, in every scope. Call it while Nest creates its instances, so that the properties are filled
   * before any hook of the application runs, and again after a module was loaded lazily.
   */
  fill(): void {
    const inject = (instance: unknown) => {
      // A frozen instance accepts no properties. Its decorated methods throw a LockConfigError when they are called.
      if (!isObject(instance) || !Object.isExtensible(instance)) return;
      for (const [token, service] of this.#services) writeProperty(instance, token, service);
    };
    for (const wrapper of this.#wrappers()) {
      if (!wrapper.isNotMetatype || this.#processed.has(wrapper)) continue;
      this.#processed.add(wrapper);
      for (const host of hostsOf(wrapper)) {
        if (host.isPending) void host.donePromise?.then(() => inject(host.instance));
        else if (host.isResolved) inject(host.instance);
      }
      if (isFactory(wrapper)) wrapper.metatype = wrapFactory(wrapper.metatype, inject);
    }
  }

  /** Removes the services of an application that ends from instances that it shares with another application. */
  clear(): void {
    for (const { instance } of this.#wrappers()) {
      for (const [token, service] of this.#services) {
        if (isObject(instance)) clearProperty(instance, token, service);
      }
    }
  }

  #wrappers(): Wrapper[] {
    return [...this.#discovery.getProviders(), ...this.#discovery.getControllers()];
  }
}

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

/** If the instance already has the service of another application, that service comes back when this one is cleared. */
function writeProperty(instance: object, token: PropertyToken, service: unknown): void {
  if (!(token in instance)) return;
  const current = readOwnValue(instance, token);
  if (current === service) return;
  if (current !== undefined)
    defineValue(instance, previousServicesKey(token), [...readPreviousServices(instance, token), current]);
  defineValue(instance, token, service);
}

/** If there is no earlier application, the service stays: its `LockShutdownError` explains more than an empty property would. */
function clearProperty(instance: object, token: PropertyToken, service: unknown): void {
  if (!(token in instance)) return;
  const others = readPreviousServices(instance, token).filter((other) => other !== service);
  if (readOwnValue(instance, token) === service && others.length > 0)
    defineValue(instance, token, others.pop());
  if (Object.hasOwn(instance, previousServicesKey(token)))
    defineValue(instance, previousServicesKey(token), others);
}

const previousServicesKey = (token: PropertyToken) => Symbol.for(`${token.description ?? ''} - earlier`);

const readPreviousServices = (instance: object, token: PropertyToken) =>
  (readOwnValue(instance, previousServicesKey(token)) as readonly unknown[] | undefined) ?? [];

const readOwnValue = (instance: object, token: symbol): unknown =>
  Object.getOwnPropertyDescriptor(instance, token)?.value;

function defineValue(instance: object, token: symbol, value: unknown): void {
  Object.defineProperty(instance, token, { value, configurable: true, writable: true });
}
