import { Inject } from '@nestjs/common';
import { describeVersionConflict } from '../core/package-copies.js';
import { LockConfigError } from '../core/errors.js';

/** What Nest knows something by that decorated classes ask for. Its text is what Nest prints when it is missing. */
export type PropertyToken = symbol;

const formatModuleCall = (name?: string) =>
  name === undefined
    ? 'DistributedLockModule.forRoot()'
    : `DistributedLockModule.forRoot({ name: '${name}' })`;

/** The token of one kind of service; registered by its text, so that no state is kept here. */
export const getPropertyToken = (service: string, name?: string): PropertyToken =>
  Symbol.for(`${service} - is ${formatModuleCall(name)} imported?`);

/**
 * Gives a class a seat for what its decorated methods need: a property under a symbol, filled by Nest with its own
 * property injection. So it works in every scope, in subclasses, and with several applications in one process.
 */
export function injectProperty(prototype: object, token: PropertyToken, location: string): symbol {
  const reason = describeVersionConflict();
  if (reason !== undefined) throw new LockConfigError(`${location}: ${reason}`);
  if (token in prototype) return token;
  Inject(token)(prototype, token);
  Object.defineProperty(prototype, token, {
    configurable: true,
    get(this: object) {
      const text = Symbol.keyFor(token);
      throw new LockConfigError(
        `${location}: this ${this.constructor.name} was not made by Nest, or is frozen, so it has no locks (${text}). Let Nest make it, or in a ` +
          `unit test use Test.createTestingModule({ imports: [LockTestingModule.forRoot()], providers: [${this.constructor.name}] }).`,
      );
    },
    set(this: object, service: unknown) {
      defineValue(this, token, service);
    },
  });
  return token;
}

/**
 * What sits there.
 *
 * @throws LockConfigError if Nest has not filled the seat
 */
export const readProperty = (instance: object, token: PropertyToken): unknown =>
  (instance as Record<PropertyToken, unknown>)[token];

/** Seats the service, if the instance has this seat. A service of another application that sits there waits behind it. */
export function writeProperty(instance: object, token: PropertyToken, service: unknown): void {
  if (!(token in instance)) return;
  const current = readOwnValue(instance, token);
  if (current === service) return;
  if (current !== undefined)
    defineValue(instance, getPreviousServicesKey(token), [...readPreviousServices(instance, token), current]);
  defineValue(instance, token, service);
}

/** The service leaves the seat, unless nobody else could take it: then it says itself that it has ended. */
export function clearProperty(instance: object, token: PropertyToken, service: unknown): void {
  if (!(token in instance)) return;
  const others = readPreviousServices(instance, token).filter((other) => other !== service);
  if (readOwnValue(instance, token) === service && others.length > 0)
    defineValue(instance, token, others.pop());
  if (Object.hasOwn(instance, getPreviousServicesKey(token)))
    defineValue(instance, getPreviousServicesKey(token), others);
}

const getPreviousServicesKey = (token: PropertyToken): symbol =>
  Symbol.for(`${token.description ?? ''} - earlier`);

const readPreviousServices = (instance: object, token: PropertyToken): readonly unknown[] =>
  (readOwnValue(instance, getPreviousServicesKey(token)) as readonly unknown[] | undefined) ?? [];

const readOwnValue = (instance: object, token: symbol): unknown =>
  Object.getOwnPropertyDescriptor(instance, token)?.value;

function defineValue(instance: object, token: symbol, value: unknown): void {
  Object.defineProperty(instance, token, { value, configurable: true, writable: true });
}
