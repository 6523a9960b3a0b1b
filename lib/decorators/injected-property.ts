import { Inject } from '@nestjs/common';
import { LockConfigError } from '../core/errors.js';
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
    get(this: object) {
      const text = Symbol.keyFor(token);
      throw new LockConfigError(
        `${location}: this ${this.constructor.name} was not created by Nest, or is frozen, so it has no locks (${text}). Let Nest create it, or in a ` +
          `unit test use Test.createTestingModule({ imports: [LockTestingModule.forRoot()], providers: [${this.constructor.name}] }).`,
      );
    },
    set(this: object, service: unknown) {
      Object.defineProperty(this, token, { value: service, configurable: true, writable: true });
    },
  });
  return token;
}

/**
 * Returns the service of an instance.
 *
 * @throws LockConfigError if nothing has filled the property
 */
export const readProperty = (instance: object, token: PropertyToken): unknown =>
  (instance as Record<PropertyToken, unknown>)[token];
