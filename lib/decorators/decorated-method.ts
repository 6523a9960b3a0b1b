import { Inject, type InjectionToken } from '@nestjs/common';
import { LockConfigError } from '../core/errors.js';
import { formatValue } from '../core/format.js';

// eslint-disable-next-line @typescript-eslint/no-explicit-any
export type Method = (this: any, ...args: any[]) => unknown;

/** What a decorator has stored about a method, and the function that was the method at that time. */
export interface MethodMetadata<Value> {
  readonly value: Value;
  readonly method: Method;
}

interface MethodTarget {
  readonly target: object;
  readonly name: string | symbol;
}

/** Names a decorator and its method in error texts and logs: `@Locked on Orders.pay`. A class itself has no `name`. */
export function describeMethod(decorator: string, target: object, name: string | symbol | undefined): string {
  if (isStandardContext(name)) return `@${decorator} on ${String(name.name)}`;
  const className = typeof target === 'function' ? target.name : target.constructor.name;
  return name === undefined
    ? `@${decorator} on the class ${className}`
    : `@${decorator} on ${className}.${String(name)}`;
}

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

export const notBootedError = (location: string, registered: 'jobs' | 'elections') =>
  new LockConfigError(
    `${location} was called before its application has booted: expected a call when all ${registered} are registered. Call it in ` +
      `onApplicationBootstrap() at the earliest, not in onModuleInit(). In a test, \`await app.init()\` is missing: compile() ` +
      `alone is not enough.`,
  );

/**
 * The decorator that injects a service of the module with a name; without a name, that of the unnamed module.
 *
 * @throws LockConfigError for a value that cannot name a module: Nest would look for a provider called `null`
 */
export const createInjectDecorator =
  (decorator: string, getToken: (name?: string) => InjectionToken) =>
  (name?: string, ...more: unknown[]): PropertyDecorator & ParameterDecorator => {
    if (more.length > 0) throw decoratorNotCalledError(decorator, name, more[0]);
    if (name === undefined || (typeof name === 'string' && name !== '')) return Inject(getToken(name));
    throw new LockConfigError(
      `@${decorator}: expected the name of a DistributedLockModule, got ${formatValue(name)}. Leave it out for the module without a name.`,
    );
  };

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

/** What a compiler without `experimentalDecorators` passes to a decorator in place of a name. */
const isStandardContext = (name: unknown): name is { readonly name: string | symbol } =>
  typeof name === 'object' && name !== null && 'kind' in name && 'name' in name;

/** What TypeScript passes to a decorator. A class itself has no `name`. */
interface DecoratorTarget {
  readonly target: object;
  readonly name: string | symbol | undefined;
  readonly descriptor: PropertyDescriptor | undefined;
}

/** @throws LockConfigError unless the decorator is on an instance method that is no generator */
export function requireMethod(location: string, decorated: DecoratorTarget): Method {
  const { target, name, descriptor } = decorated;
  if (isStandardContext(name)) {
    throw new LockConfigError(
      `${location}: expected a decorator as TypeScript has them with experimentalDecorators, got a standard one. Set ` +
        `experimentalDecorators: true in the tsconfig.json that your compiler or test runner reads.`,
    );
  }
  const method: unknown = descriptor?.value;
  if (typeof target === 'function' || typeof method !== 'function') {
    const found = describeTarget(decorated);
    throw new LockConfigError(`${location}: expected a method of instances, got ${found}.`);
  }
  if (/Generator/.test(Object.prototype.toString.call(method))) {
    throw new LockConfigError(
      `${location}: expected a method that returns a promise of a complete value, got a generator, which would run after the ` +
        `method has returned. Collect the values inside and return an array.`,
    );
  }
  return method as Method;
}

/**
 * For a method that is found when the application boots.
 *
 * @throws LockConfigError for a symbol: Nest does not find such methods
 */
export function requireTextName(location: string, name: string | symbol): void {
  if (typeof name === 'string') return;
  throw new LockConfigError(
    `${location}: expected a method with a text as its name, got ${String(name)}. Nest does not find methods that are named ` +
      `by a symbol, so it would never run.`,
  );
}

/** What a decorator was put on instead of a method, and what to do. */
function describeTarget({ target, name, descriptor }: DecoratorTarget): string {
  if (name === undefined) return 'a class or a parameter of its constructor. Put it on a method';
  if (typeof target === 'function') return 'a static one. Put it on a method of instances';
  const kind = descriptor?.get || descriptor?.set ? 'a getter' : 'a property';
  return `${kind}. Make it an async method`;
}

/**
 * Replaces a method by another function that looks the same to Nest: it has the original's name and length. The original is its
 * prototype, so it inherits all metadata that decorators store on the original (routes, guards, `@Cron`).
 */
export function replaceMethod(descriptor: PropertyDescriptor, original: Method, replacement: Method): void {
  Object.defineProperty(replacement, 'name', { value: original.name, configurable: true });
  Object.defineProperty(replacement, 'length', { value: original.length, configurable: true });
  Object.setPrototypeOf(replacement, original);
  descriptor.value = replacement;
}

/** Adds metadata to the function and to its class: a decorator above may replace the method by a function without metadata. */
export function addMethodMetadata<Value>(
  key: symbol,
  { target, name, ...metadata }: MethodTarget & MethodMetadata<Value>,
): void {
  const { method } = metadata;
  Reflect.defineMetadata(key, [...storedMetadata<Value>(Reflect.getMetadata(key, method)), metadata], method);
  const ofClass = storedMetadata<Value>(Reflect.getOwnMetadata(key, target, name));
  Reflect.defineMetadata(key, [...ofClass, metadata], target, name);
}

/**
 * Reads what decorators have stored about a method of this class, the topmost last. A method that overrides a decorated one
 * without a decorator has none.
 */
export const readMethodMetadata = <Value>(
  key: symbol,
  { target, name, method }: MethodTarget & { readonly method: Method },
): readonly MethodMetadata<Value>[] => [
  ...new Set([
    ...storedMetadata<Value>(Reflect.getOwnMetadata(key, target, name)),
    ...storedMetadata<Value>(Reflect.getMetadata(key, method)),
  ]),
];

const storedMetadata = <Value>(stored: unknown) => (stored ?? []) as readonly MethodMetadata<Value>[];

/** For a decorator that works only if Nest creates exactly one instance. */
export const scopedProviderError = (location: string, consequence: string) =>
  new LockConfigError(
    `${location}: expected a provider that Nest creates once, got one that is request-scoped or transient${consequence}. Move the ` +
      `method to a separate provider.`,
  );
