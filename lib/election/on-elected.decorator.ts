import { OptionErrors } from '../core/option-errors.js';
import { MIN_LEASE_MS } from '../core/options.js';
import { requireMethod, describeMethod, decoratorNotCalledError } from '../decorators/decorated-method.js';
import { injectProperty } from '../decorators/injected-property.js';
import { type ElectionOptions, collectNameErrors } from './election.options.js';
import { getElectionsPropertyToken } from './leader-election.js';
import { type ElectionMetadata, addElectionMetadata } from './election-metadata.js';

export interface ElectionHandlerOptions {
  /** The name of the module whose elections are meant. */
  service?: string;
}

/** The lease is that of the election: one method or `join()` may give it for all that take part in it. */
export interface OnElectedOptions extends ElectionHandlerOptions, ElectionOptions {}

/**
 * Runs the method, with the {@link LeaderTerm}, when this process is elected. It joins the election by itself, when every
 * `onApplicationBootstrap` has ended: a lifecycle hook that awaits a leader waits for ever.
 *
 * It may run for as long as the term: end it when `term.signal` aborts, since the leadership is not given back, and this
 * process does not stand again, before it has. If it returns earlier the process leads on; if it throws, that is logged
 * and published, and the process leads on. Inside, `currentLock()` is the lease of the term.
 */
export function OnElected(name: string, options?: OnElectedOptions): MethodDecorator;
export function OnElected(name: string, options: OnElectedOptions = {}, ...more: unknown[]): MethodDecorator {
  if (more.length > 0) throw decoratorNotCalledError('OnElected', name, options);
  const { service, leaseMs } = { ...options };
  return createHandlerDecorator('OnElected', { name, service, leaseMs, kind: 'elected' }, options);
}

/**
 * Runs the method, with the {@link LeaderTerm}, as soon as this process leads no more: the lease was lost, resigned, or the
 * application shuts down. Where the leadership is given back, that is done when the method has ended.
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
  metadata: ElectionMetadata,
  options: ElectionHandlerOptions,
): MethodDecorator {
  return (target, name, descriptor) => {
    const location = describeMethod(decorator, target, name);
    const method = requireMethod(location, target, descriptor);
    const errors = new OptionErrors();
    collectNameErrors(errors, metadata.name);
    errors.object('options', options, metadata.kind === 'elected' ? ['service', 'leaseMs'] : ['service']);
    errors.integerMs('options.leaseMs', metadata.leaseMs, { min: MIN_LEASE_MS });
    errors.text('options.service', metadata.service, { max: 64 });
    errors.throwIfAny(location);
    injectProperty(target, getElectionsPropertyToken(metadata.service), location);
    addElectionMetadata(method, { target, name }, metadata);
  };
}
