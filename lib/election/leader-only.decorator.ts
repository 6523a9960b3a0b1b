import { Faults } from '../core/faults.js';
import type { MayBeSkipped, MethodMustBeAsyncAndReturnUndefinedToo } from '../decorators/locked.decorator.js';
import { methodAt, placeOf, withoutBrackets } from '../decorators/method-place.js';
import { refuseStream } from '../decorators/refuse-stream.js';
import { replaceMethod } from '../decorators/replace-method.js';
import { inSeat, takeSeat } from '../decorators/seat.js';
import { findNameFaults } from './election.options.js';
import { type Elections, notLeading } from './elections.js';
import { electionsSeat } from './leader-election.js';
import { markMethod } from './marks.js';

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
  if (more.length > 0) throw withoutBrackets('LeaderOnly', name, options);
  return ((target: object, property: string | symbol, descriptor: PropertyDescriptor) => {
    const place = placeOf('LeaderOnly', target, property);
    const original = methodAt(place, target, descriptor);
    checkOptions(name, options, place);
    const { otherwise, service } = { ...options };
    const seat = takeSeat(target, electionsSeat(service), place);

    const replacement = async function (this: object, ...args: unknown[]): Promise<unknown> {
      const elections = inSeat(this, seat) as Elections;
      elections.throwIfTooEarly(name, place);
      elections.joinOnCall(name);
      const term = await elections.confirmedTerm(name);
      if (term?.isOn)
        return term.run(place, async () => refuseStream(await original.apply(this, args), place));
      if (otherwise === 'throw') throw notLeading(name, place);
      return undefined;
    };
    replaceMethod(descriptor, original, replacement);
    markMethod(replacement, { target, name: property }, { name, service, when: 'only' });
  }) as LeaderOnlyDecorator & SkippingLeaderOnlyDecorator;
}

function checkOptions(name: string, options: LeaderOnlyOptions, place: string): void {
  const faults = new Faults();
  findNameFaults(faults, name);
  const given = faults.object('options', options, ['otherwise', 'service']);
  faults.oneOf('options.otherwise', given.otherwise, ['skip', 'throw']);
  faults.text('options.service', given.service, { max: 64 });
  faults.throwIfAny(place);
}
