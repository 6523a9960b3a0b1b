import { LockTimeoutError } from '../core/errors.js';
import { OptionErrors } from '../core/option-errors.js';
import { MIN_LEASE_MS } from '../core/options.js';
import { rejectStream } from '../decorators/reject-stream.js';
import {
  addMethodMetadata,
  decoratorNotCalledError,
  describeMethod,
  replaceMethod,
  requireMethod,
  requireTextName,
} from '../decorators/decorated-method.js';
import { injectProperty, readProperty } from '../decorators/injected-property.js';
import type { LockedDecorator, SkippingLockedDecorator } from '../decorators/locked.decorator.js';
import { type ElectionOptions, collectNameErrors } from './election.js';
import type { Elections } from './elections.js';
import { getElectionsPropertyToken } from './leader-election.service.js';

/** What an election decorator stores about a method. A method may have it several times, for several elections. */
export interface ElectionMetadata {
  readonly name: string;
  /** The name of the module whose elections are used. */
  readonly service: string | undefined;
  /** The lease of the election, if this method sets it. */
  readonly leaseMs?: number | undefined;
  readonly kind: 'elected' | 'revoked' | 'only';
}

export const ELECTION_METADATA = Symbol.for('nestjs-distributed-lock:election');

export interface ElectionHandlerOptions {
  /** The name of the module whose elections are used. */
  service?: string;
}

/**
 * `leaseMs` is the lease of the election: set it once, in one method or in `join()`, for all methods of this election.
 */
export interface OnElectedOptions extends ElectionHandlerOptions, ElectionOptions {}

/**
 * Runs the method with the {@link LeaderTerm} when this process is elected. The decorator joins the election. Elections
 * begin after every `onApplicationBootstrap` hook has ended, so do not await a leader in a lifecycle hook: it would
 * wait forever.
 *
 * The method may run for as long as the term. When `term.signal` aborts, return from it: until it has ended, the
 * leadership is not released and this process is not a candidate again. If the method returns earlier or throws, the
 * process stays leader. An error is logged and published as `leader-failed`. If the method returns a stream, an iterator
 * or an Observable, that is an error too. Inside, `currentLock()` returns the lock of the term.
 *
 * @throws LockConfigError when the class is defined, if the name or the options are wrong
 */
export function OnElected(name: string, options?: OnElectedOptions): MethodDecorator;
export function OnElected(name: string, options: OnElectedOptions = {}, ...more: unknown[]): MethodDecorator {
  if (more.length > 0) throw decoratorNotCalledError('OnElected', name, options);
  const { service, leaseMs } = { ...options };
  return createHandlerDecorator('OnElected', { name, service, leaseMs, kind: 'elected' }, options);
}

/**
 * Runs the method with the {@link LeaderTerm} as soon as this process no longer leads: the lease was lost, the term was
 * resigned, or the application is shutting down. If the lease was not lost, the leadership is released after the method
 * has ended.
 *
 * @throws LockConfigError when the class is defined, if the name or the options are wrong
 */
export function OnRevoked(name: string, options?: ElectionHandlerOptions): MethodDecorator;
export function OnRevoked(
  name: string,
  options: ElectionHandlerOptions = {},
  ...more: unknown[]
): MethodDecorator {
  if (more.length > 0) throw decoratorNotCalledError('OnRevoked', name, options);
  const { service } = { ...options };
  return createHandlerDecorator('OnRevoked', { name, service, kind: 'revoked' }, options);
}

function createHandlerDecorator(
  decorator: string,
  value: ElectionMetadata,
  options: ElectionHandlerOptions,
): MethodDecorator {
  return (target, name, descriptor) => {
    const location = describeMethod(decorator, target, name);
    const method = requireMethod(location, { target, name, descriptor });
    requireTextName(location, name);
    const errors = new OptionErrors();
    collectNameErrors(errors, value.name);
    errors.object('options', options, value.kind === 'elected' ? ['service', 'leaseMs'] : ['service']);
    errors.integerMs('options.leaseMs', value.leaseMs, { min: MIN_LEASE_MS });
    errors.text('options.service', value.service, { max: 64 });
    errors.throwIfAny(location);
    injectProperty(target, getElectionsPropertyToken(value.service), location);
    addMethodMetadata(ELECTION_METADATA, { target, name, method, value });
  };
}

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

/** What the compiler shows on a method that is not asynchronous. */
export interface MethodMustBeAsync {
  readonly methodMustBeAsync: never;
}

/** A decorator for asynchronous methods. */
export type LeaderOnlyDecorator = LockedDecorator<() => string, MethodMustBeAsync>;

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
export function LeaderOnly(name: string, options?: LeaderOnlyOptions): SkippingLockedDecorator;
export function LeaderOnly(
  name: string,
  options: LeaderOnlyOptions = {},
  ...more: unknown[]
): LeaderOnlyDecorator & SkippingLockedDecorator {
  if (more.length > 0) throw decoratorNotCalledError('LeaderOnly', name, options);
  return ((target: object, property: string | symbol, descriptor: PropertyDescriptor) => {
    const location = describeMethod('LeaderOnly', target, property);
    const original = requireMethod(location, { target, name: property, descriptor });
    checkOptions(name, options, location);
    const { otherwise, service } = { ...options };
    const token = injectProperty(target, getElectionsPropertyToken(service), location);

    const replacement = async function (this: object, ...args: unknown[]): Promise<unknown> {
      const elections = readProperty(this, token, location) as Elections;
      const term = await elections.termForCall(name, location);
      if (term?.isActive)
        return term.runWork(location, async () => rejectStream(await original.apply(this, args), location));
      if (otherwise === 'throw') throw notLeaderError(name, location);
      return undefined;
    };
    replaceMethod(descriptor, original, replacement);
    const value: ElectionMetadata = { name, service, kind: 'only' };
    addMethodMetadata(ELECTION_METADATA, { target, name: property, method: replacement, value });
  }) as LeaderOnlyDecorator & SkippingLockedDecorator;
}

function checkOptions(name: string, options: LeaderOnlyOptions, location: string): void {
  const errors = new OptionErrors();
  collectNameErrors(errors, name);
  const given = errors.object('options', options, ['otherwise', 'service']);
  errors.oneOf('options.otherwise', given.otherwise, ['skip', 'throw']);
  errors.text('options.service', given.service, { max: 64 });
  errors.throwIfAny(location);
}

/** The same class as for a taken lock, so that callers can treat both alike. */
const notLeaderError = (name: string, location: string) =>
  new LockTimeoutError(
    `${location}: this process does not lead "${name}" now. Send the work to the leader, or remove otherwise: 'throw' ` +
      `to skip it.`,
    { key: name },
  );
