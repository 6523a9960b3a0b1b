import { OptionErrors } from '../core/option-errors.js';
import { MIN_LEASE_MS } from '../core/options.js';
import {
  addMethodMetadata,
  decoratorNotCalledError,
  describeMethod,
  requireMethod,
} from '../decorators/decorated-method.js';
import { injectProperty } from '../decorators/injected-property.js';
import {
  ELECTION_METADATA,
  type ElectionMetadata,
  type ElectionOptions,
  collectNameErrors,
} from './election.options.js';
import { getElectionsPropertyToken } from './leader-election.js';

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
 * process stays leader. An error is logged and published as `leader-failed`. Inside, `currentLock()` returns the lock
 * of the term.
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
    const method = requireMethod(location, target, descriptor);
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
