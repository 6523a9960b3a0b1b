import { OptionErrors } from '../core/option-errors.js';
import type { MayBeSkipped, MethodMustBeAsyncAndReturnUndefinedToo } from '../decorators/locked.decorator.js';
import { requireMethod, describeMethod, decoratorNotCalledError } from '../decorators/decorated-method.js';
import { requireCompleteValue } from '../decorators/complete-value.js';
import { replaceMethod } from '../decorators/method-replacement.js';
import { readProperty, injectProperty } from '../decorators/injected-property.js';
import { collectNameErrors } from './election.options.js';
import { type Elections, notLeaderError } from './elections.js';
import { getElectionsPropertyToken } from './leader-election.js';
import { addElectionMetadata } from './election-metadata.js';

export interface LeaderOnlyOptions {
  /**
   * What a call does where this process does not lead: `skip`, that is answer `undefined` without running the method, or
   * `throw` a `LockTimeoutError`, as for a lock that somebody else has and that nobody waits for.
   *
   * @default 'skip'
   */
  otherwise?: 'skip' | 'throw';
  /** The name of the module whose elections are meant. */
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
  /** For `applyDecorators`. The compiler refuses what it returns on a method that is not asynchronous. */
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
 * Runs the method only while this process leads; elsewhere a call returns `undefined`, which the type of the method must
 * admit, or with `otherwise: 'throw'` rejects. It joins the election by itself, when the application boots; on
 * instances that Nest does not know then, as of a request-scoped `useFactory` or `moduleRef.create()`, with its first call.
 *
 * A call that has begun belongs to the term: inside, `currentLock()` is its lease, whose signal aborts when it is revoked,
 * and the leadership is not given back before the call has ended. Its value or exception reaches the caller untouched.
 *
 * @throws LockConfigError when the class is defined, if something about it is wrong; when it is called, if the method returns
 *   a stream, iterator or Observable, as under `@Locked`, or if the application has not booted, as in a test without `app.init()`
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
    addElectionMetadata(replacement, { target, name: property }, { name, service, kind: 'only' });
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
