import { LockConfigError } from '../core/errors.js';
import { shown } from '../core/shown.js';
import type { Method } from './replace-method.js';

/** Where a decorator stands, in words. */
export const placeOf = (decorator: string, target: object, name: string | symbol) =>
  `@${decorator} on ${target.constructor.name}.${String(name)}`;

/** @throws LockConfigError unless the decorator stands on a method of instances */
export function methodAt(place: string, target: object, descriptor: PropertyDescriptor | undefined): Method {
  const method: unknown = descriptor?.value;
  if (typeof target === 'function' || typeof method !== 'function') {
    throw new LockConfigError(
      `${place}: expected a method of instances, got ${typeof target === 'function' ? 'a static one' : shown(method)}.`,
    );
  }
  if (/Generator/.test(Object.prototype.toString.call(method))) {
    throw new LockConfigError(
      `${place}: expected a method that returns a promise of a complete value, got a generator, which would run after the ` +
        `method has returned. Collect the values inside and return an array.`,
    );
  }
  return method as Method;
}
