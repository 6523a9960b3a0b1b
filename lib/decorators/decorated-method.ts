import { LockConfigError } from '../core/errors.js';
import { formatValue } from '../core/format.js';
import type { Method } from './method-replacement.js';

/** Names a decorator and its method in error texts and logs: `@Locked on Orders.pay`. */
export const describeMethod = (decorator: string, target: object, name: string | symbol) =>
  `@${decorator} on ${typeof target === 'function' ? target.name : target.constructor.name}.${String(name)}`;

/** For `@Locked` without parentheses: the factory then receives the arguments of a decorator. */
export function decoratorNotCalledError(
  decorator: string,
  target: unknown,
  name: unknown = 'constructor',
): LockConfigError {
  const location = describeMethod(decorator, Object(target) as object, name as string);
  return new LockConfigError(
    `${location}: expected a call, got the decorator itself. Write @${decorator}(…).`,
  );
}

/** @throws LockConfigError for a value that cannot name a module: Nest would look for a provider called `null` */
export function checkModuleName(decorator: string, name: unknown): void {
  if (name === undefined || (typeof name === 'string' && name !== '')) return;
  throw new LockConfigError(
    `@${decorator}: expected the name of a DistributedLockModule, got ${formatValue(name)}. Leave it out for the module without a name.`,
  );
}

/**
 * Counts the parameters of a method by its source. `undefined` if the source does not show the number: with defaults, rest
 * parameters and `arguments`.
 */
export function countParameters(method: Method): number | undefined {
  const source = Function.prototype.toString.call(method);
  // A Proxy or the result of bind() hides the parameters of the method inside.
  if (source.includes('[native code]')) return undefined;
  const list = /^(?:async\s*)?(?:function\s*)?[\w$]*\s*\(([^()=]*)\)\s*\{/.exec(source)?.[1];
  if (list === undefined || list.includes('...') || /\barguments\b/.test(source)) return undefined;
  return method.length;
}

/** @throws LockConfigError unless the decorator is on an instance method that is no generator */
export function requireMethod(
  location: string,
  target: object,
  descriptor: PropertyDescriptor | undefined,
): Method {
  const method: unknown = descriptor?.value;
  if (typeof target === 'function' || typeof method !== 'function') {
    throw new LockConfigError(
      `${location}: expected a method of instances, got ${typeof target === 'function' ? 'a static one' : formatValue(method)}.`,
    );
  }
  if (/Generator/.test(Object.prototype.toString.call(method))) {
    throw new LockConfigError(
      `${location}: expected a method that returns a promise of a complete value, got a generator, which would run after the ` +
        `method has returned. Collect the values inside and return an array.`,
    );
  }
  return method as Method;
}
