import { LockConfigError, LockTimeoutError } from '../core/errors.js';
import { formatValue } from '../core/format.js';
import { type LockKey, MAX_KEYS } from '../core/key.js';
import type { Lock } from '../core/lock.js';
import { OptionErrors } from '../core/option-errors.js';
import { type AcquireOptions, MAX_LABEL_LENGTH, collectAcquireErrors } from '../core/options.js';
import { rejectStream } from './reject-stream.js';
import {
  type Method,
  addMethodMetadata,
  countParameters,
  decoratorNotCalledError,
  describeMethod,
  replaceMethod,
  requireMethod,
} from './decorated-method.js';
import { getPropertyToken, injectProperty, readProperty } from './injected-property.js';
import { compileKeyTemplate } from './key-template.js';
import { type LockedMetadata, LOCKED_METADATA, kindOf } from './locked-kinds.js';

/** Without `signal`: it would be one signal for all calls, and a timeout would begin when the class is defined. */
export interface LockedOptions extends Omit<AcquireOptions, 'signal'> {
  /**
   * What a call does if the lock is not acquired. With `throw`, it rejects with `LockTimeoutError`. With `skip`, it
   * returns `undefined` without running the method, and does not wait, unless `waitMs` is set here too.
   *
   * @default 'throw'
   */
  onContention?: 'throw' | 'skip';
  /** The name of the module whose `LockService` is used. */
  service?: string;
}

// Parameters are contravariant, so only `any` fits every method and every key function.
/* eslint-disable @typescript-eslint/no-explicit-any */
export type LockedKeyFunction = (...args: any[]) => string | readonly string[];

/** A decorator for asynchronous methods; with a key function, for methods whose parameters the function accepts. */
export interface LockedDecorator<
  KeyFunction extends LockedKeyFunction = () => string,
  Refusal = MethodMustBeAsyncAndTakeTheParametersOfTheKey,
> {
  <Method extends (...args: any[]) => Promise<any>>(
    target: object,
    name: string | symbol,
    descriptor: TypedPropertyDescriptor<Method> & MatchingParameters<KeyFunction, Method>,
  ): void;
  /** For `applyDecorators`. Its return type makes the compiler reject methods that the first form does not accept. */
  (target: object, name: string | symbol): Refusal;
}

/** A decorator for asynchronous methods whose callers know that they may get `undefined`. */
export interface SkippingLockedDecorator<KeyFunction extends LockedKeyFunction = () => string> {
  <Method extends (...args: any[]) => Promise<any>>(
    target: object,
    name: string | symbol,
    descriptor: TypedPropertyDescriptor<Method> &
      MatchingParameters<KeyFunction, Method> &
      MayBeSkipped<Method>,
  ): void;
  /** For `applyDecorators`, as in {@link LockedDecorator}. */
  (target: object, name: string | symbol): MethodMustBeAsyncAndReturnUndefinedToo;
}

/** What the compiler shows on a method that is not asynchronous, or whose parameters the key function does not accept. */
export interface MethodMustBeAsyncAndTakeTheParametersOfTheKey {
  readonly methodMustBeAsyncAndTakeTheParametersOfTheKey: never;
}

/** What the compiler shows on a method that is not asynchronous, or may be skipped although its type lacks `undefined`. */
export interface MethodMustBeAsyncAndReturnUndefinedToo {
  readonly methodMustBeAsyncAndReturnUndefinedToo: never;
}

/** Accepts a method only if its type shows callers that they may get `undefined`. */
type MayBeSkipped<Method extends (...args: any[]) => Promise<any>> =
  undefined extends Awaited<ReturnType<Method>> ? unknown : MethodMustBeAsyncAndReturnUndefinedToo;

type MatchingParameters<KeyFunction extends LockedKeyFunction, Method extends (...args: any[]) => unknown> =
  Parameters<Method> extends [...Parameters<KeyFunction>, ...any[]]
    ? unknown
    : MethodMustBeAsyncAndTakeTheParametersOfTheKey;
/* eslint-enable @typescript-eslint/no-explicit-any */

/** The part of `LockService` that the decorator uses. */
interface WithLock {
  withLock<T>(key: LockKey, options: AcquireOptions, work: (lock: Lock) => Promise<T>): Promise<T>;
}

/** The property token of the `LockService` of the module with this name. */
export const getLockServicePropertyToken = (name?: string) => getPropertyToken('LockService', name);

/**
 * Runs the method under a lock. The key is a text, a template of the arguments such as `'order:{0.id}'`, or a function
 * of the arguments. A list of these texts, or a function that returns one, locks all keys of the list or none. Inside the
 * method, `currentLock()` returns the lock.
 *
 * Put `@Locked()` above `@Transactional()` and similar decorators, so that the transaction is committed before the lock
 * is released. Below them, or with an interceptor that commits after the handler, the next holder begins before COMMIT
 * and reads old values. For TypeORM, use `withLockedTransaction`. With `typeorm-transactional`, one warning is logged
 * if the method is called in an open transaction.
 *
 * If a subclass overrides the method without the decorator, its method is not locked.
 *
 * The method must return a complete value. If it returns an Observable, `StreamableFile`, stream, unread `Response`,
 * iterator or async iterable, the call rejects and the result is closed, because it would be read after the lock was
 * released.
 *
 * @throws LockConfigError when the class is defined, if the key or the options are wrong; when the method is called, if
 *   a placeholder has no value or the method returns a stream
 */
export function Locked<KeyFunction extends LockedKeyFunction>(
  key: string | readonly string[] | KeyFunction,
  options: LockedOptions & { readonly onContention: 'skip' },
): SkippingLockedDecorator<KeyFunction>;
export function Locked<KeyFunction extends LockedKeyFunction>(
  key: string | readonly string[] | KeyFunction,
  options?: LockedOptions,
): LockedDecorator<KeyFunction>;
export function Locked(
  key: string | readonly string[] | LockedKeyFunction,
  options: LockedOptions = {},
  ...more: unknown[]
): LockedDecorator<LockedKeyFunction> & SkippingLockedDecorator<LockedKeyFunction> {
  if (more.length > 0 && typeof key !== 'string') throw decoratorNotCalledError('Locked', key, options);
  return ((target: object, name: string | symbol, descriptor: PropertyDescriptor) => {
    const location = describeMethod('Locked', target, name);
    const original = requireMethod(location, { target, name, descriptor });
    const { onContention, service, ...acquireOptions } = checkOptions(options, location, key);
    const buildKey = compileKey(key, location, original);
    const token = injectProperty(target, getLockServicePropertyToken(service), location);
    if (onContention === 'skip') acquireOptions.waitMs ??= 0;
    const label =
      typeof key === 'function' ? `${target.constructor.name}.${String(name)}` : [key].flat().join(', ');
    acquireOptions.label ??= label.slice(0, MAX_LABEL_LENGTH).toWellFormed();

    replaceMethod(descriptor, original, async function (this: object, ...args) {
      let hasBegun = false as boolean;
      const work = async () => {
        hasBegun = true;
        return rejectStream(await original.apply(this, args), location);
      };
      try {
        const locks = readProperty(this, token, location) as WithLock;
        return await locks.withLock(buildKey(args), acquireOptions, work);
      } catch (error) {
        // After the method has begun, the timeout is that of another lock inside it, and belongs to the caller.
        if (onContention === 'skip' && !hasBegun && error instanceof LockTimeoutError) return undefined;
        throw error;
      }
    });
    const method = descriptor.value as Method;
    const templates = typeof key === 'function' ? [] : [key].flat();
    const value = { location, templates, kind: kindOf(acquireOptions), service };
    addMethodMetadata<LockedMetadata>(LOCKED_METADATA, { target, name, method, value });
  }) as LockedDecorator<LockedKeyFunction> & SkippingLockedDecorator<LockedKeyFunction>;
}

const INSTEAD_OF_SIGNAL =
  'one signal would end the waits of all calls; set waitMs, or call withLock() with a signal';

function checkOptions(options: LockedOptions, location: string, key: unknown): LockedOptions {
  const errors = new OptionErrors();
  if (typeof options === 'string') errors.add(`for several keys, pass a list: @Locked(['a', 'b'])`);
  const names = { alsoKnown: ['onContention', 'service'], hints: { signal: INSTEAD_OF_SIGNAL } };
  collectAcquireErrors(errors, 'options', options, names);
  const given: LockedOptions = { ...options };
  errors.oneOf('options.onContention', given.onContention, ['throw', 'skip']);
  errors.text('options.service', given.service, { max: 64 });
  const kind = kindOf(given);
  if (kind !== 'plain' && Array.isArray(key))
    errors.add(`expected one key for a lock ${kind}, got a list. Acquire one lock inside the other`);
  errors.throwIfAny(location);
  return given;
}

function compileKey(
  key: string | readonly string[] | LockedKeyFunction,
  location: string,
  method: Method,
): (args: readonly unknown[]) => LockKey {
  if (typeof key === 'function') return (args) => requireKeys(key(...args), location);
  const compile = (template: string) => compileKeyTemplate(template, location, countParameters(method));
  if (typeof key === 'string' && key !== '') return compile(key);
  if (!Array.isArray(key) || key.length === 0 || key.length > MAX_KEYS || !key.every(isTemplate)) {
    throw new LockConfigError(
      `${location}: expected the key to be a text, a list of 1 to ${MAX_KEYS} texts or a function, got ${formatValue(key)}. ` +
        `Write it like @Locked('order:{0}').`,
    );
  }
  const parts = key.map(compile);
  return (args) => parts.map((buildKey) => buildKey(args));
}

/** The core would refuse it too, but without naming the method. */
function requireKeys(keys: LockKey, location: string): LockKey {
  if (typeof keys === 'string' ? keys !== '' : Array.isArray(keys) && keys.every(isTemplate)) return keys;
  throw new LockConfigError(
    `${location}: expected the key function to return a text or a list of texts, got ${formatValue(keys)}. Return the key ` +
      `itself, not a promise, and check that the arguments have a value.`,
  );
}

const isTemplate = (key: unknown) => typeof key === 'string' && key !== '';
