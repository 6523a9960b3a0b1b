import { OptionErrors } from '../core/option-errors.js';
import { requireCompleteValue } from '../decorators/complete-value.js';
import {
  addMethodMetadata,
  decoratorNotCalledError,
  describeMethod,
  replaceMethod,
  requireMethod,
} from '../decorators/decorated-method.js';
import { injectProperty, readProperty } from '../decorators/injected-property.js';
import type { MayBeSkipped, MethodMustBeAsyncAndReturnUndefinedToo } from '../decorators/locked.decorator.js';
import { ELECTION_METADATA, type ElectionMetadata, collectNameErrors } from './election.options.js';
import { type Elections, notLeaderError } from './elections.js';
import { getElectionsPropertyToken } from './leader-election.js';

export interface LeaderOnlyOptions {
  /**
   * What a call does if this process does not lead. With `skip`, it returns `undefined` without running the method.
   * With `throw`, it rejects with `LockTimeoutError`, as for a taken lock with `waitMs: 0`.
   *
   * @default 'skip'
   */
  otherwise?: 'skip' | 'throw';
  /** The name of the module whose elections are used. */
  service?: string;
}

// Parameters are contravariant, so only `any` fits every method.
/* eslint-disable @typescript-eslint/no-explicit-any */
/** A decorator for asynchronous methods. */
export interface LeaderOnlyDecorator {
  <Method extends (...args: any[]) => Promise<any>>(
    target: object,
    name: string | symbol,
    descriptor: TypedPropertyDescriptor<Method>,
  ): void;
  /** For `applyDecorators`. Its return type makes the compiler reject methods that are not asynchronous. */
  (target: object, name: string | symbol): MethodMustBeAsync;
}

/** A decorator for asynchronous methods whose callers know that they may get `undefined`. */
export interface SkippingLeaderOnlyDecorator {
  <Method extends (...args: any[]) => Promise<any>>(
    target: object,
    name: string | symbol,
    descriptor: TypedPropertyDescriptor<Method> & MayBeSkipped<Method>,
  ): void;
  /** For `applyDecorators`, as in {@link LeaderOnlyDecorator}. */
  (target: object, name: string | symbol): MethodMustBeAsyncAndReturnUndefinedToo;
}
/* eslint-enable @typescript-eslint/no-explicit-any */

/** What the compiler shows on a method that is not asynchronous. */
export interface MethodMustBeAsync {
  readonly methodMustBeAsync: never;
}

/**
 * Runs the method only while this process leads. Otherwise a call returns `undefined`, which the return type of the
 * method must include. With `otherwise: 'throw'`, the call rejects instead. The decorator joins the election when the
 * application boots. For instances that Nest does not know at boot (from a request-scoped `useFactory` or
 * `moduleRef.create()`), it joins at the first call.
 *
 * While a call is in progress, the leadership is not released. Inside the method, `currentLock()` returns the lock of
 * the term, whose signal aborts when the term ends. The caller receives the value or exception of the method unchanged.
 *
 * @throws LockConfigError when the class is defined, if the name or the options are wrong; when the method is called,
 *   if it returns a stream, iterator or Observable, as under `@Locked`, or if the application has not booted (a test
 *   without `app.init()`)
 * @throws LockTimeoutError with `otherwise: 'throw'`, if this process does not lead
 */
export function LeaderOnly(
  name: string,
  options: LeaderOnlyOptions & { readonly otherwise: 'throw' },
): LeaderOnlyDecorator;
export function LeaderOnly(name: string, options?: LeaderOnlyOptions): SkippingLeaderOnlyDecorator;
export function LeaderOnly(
  name: string,
  options: LeaderOnlyOptions = {},
  ...more: unknown[]
): LeaderOnlyDecorator & SkippingLeaderOnlyDecorator {
  if (more.length > 0) throw decoratorNotCalledError('LeaderOnly', name, options);
  return ((target: object, property: string | symbol, descriptor: PropertyDescriptor) => {
    const location = describeMethod('LeaderOnly', target, property);
    const original = requireMethod(location, target, descriptor);
    checkOptions(name, options, location);
    const { otherwise, service } = { ...options };
    const token = injectProperty(target, getElectionsPropertyToken(service), location);

    const replacement = async function (this: object, ...args: unknown[]): Promise<unknown> {
      const elections = readProperty(this, token) as Elections;
      elections.throwIfNotBooted(name, location);
      elections.joinOnCall(name);
      const term = await elections.confirmTerm(name);
      if (term?.isActive)
        return term.runWork(location, async () =>
          requireCompleteValue(await original.apply(this, args), location),
        );
      if (otherwise === 'throw') throw notLeaderError(name, location);
      return undefined;
    };
    replaceMethod(descriptor, original, replacement);
    const value: ElectionMetadata = { name, service, kind: 'only' };
    addMethodMetadata(ELECTION_METADATA, { target, name: property, method: replacement, value });
  }) as LeaderOnlyDecorator & SkippingLeaderOnlyDecorator;
}

function checkOptions(name: string, options: LeaderOnlyOptions, location: string): void {
  const errors = new OptionErrors();
  collectNameErrors(errors, name);
  const given = errors.object('options', options, ['otherwise', 'service']);
  errors.oneOf('options.otherwise', given.otherwise, ['skip', 'throw']);
  errors.text('options.service', given.service, { max: 64 });
  errors.throwIfAny(location);
}
