import { LockConfigError } from '../core/errors.js';
import { formatValue } from '../core/format.js';
import type { Method } from './method-replacement.js';

/** Where a decorator stands, in words. */
export const describeMethod = (decorator: string, target: object, name: string | symbol) =>
  `@${decorator} on ${typeof target === 'function' ? target.name : target.constructor.name}.${String(name)}`;

/** A decorator that got what a method decorator gets was used without its call. */
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

/** @throws LockConfigError for what can name no module: Nest would look for a provider called `null` */
export function checkModuleName(decorator: string, name: unknown): void {
  if (name === undefined || (typeof name === 'string' && name !== '')) return;
  throw new LockConfigError(
    `@${decorator}: expected the name of a DistributedLockModule, got ${formatValue(name)}. Leave it out for the module without a name.`,
  );
}

/** How many parameters a method has, if its source says so: defaults, rest parameters and `arguments` hide it. */
export function countParameters(method: Method): number | undefined {
  const source = Function.prototype.toString.call(method);
  // That of a Proxy, or of what bind() returned: how many parameters the method has inside is not known.
  if (source.includes('[native code]')) return undefined;
  const list = /^(?:async\s*)?(?:function\s*)?[\w$]*\s*\(([^()=]*)\)\s*\{/.exec(source)?.[1];
  if (list === undefined || list.includes('...') || /\barguments\b/.test(source)) return undefined;
  return method.length;
}

/** @throws LockConfigError unless the decorator stands on a method of instances */
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
