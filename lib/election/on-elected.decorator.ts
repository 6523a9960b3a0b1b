import { Faults } from '../core/faults.js';
import { SHORTEST_LEASE_MS } from '../core/options.js';
import { methodAt, placeOf, withoutBrackets } from '../decorators/method-place.js';
import { takeSeat } from '../decorators/seat.js';
import { type ElectionOptions, findNameFaults } from './election.options.js';
import { electionsSeat } from './leader-election.js';
import { type ElectionMark, markMethod } from './marks.js';

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
  if (more.length > 0) throw withoutBrackets('OnElected', name, options);
  const { service, leaseMs } = { ...options };
  return handler('OnElected', { name, service, leaseMs, when: 'elected' }, options);
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
  if (more.length > 0) throw withoutBrackets('OnRevoked', name, options);
  const { service } = { ...options };
  return handler('OnRevoked', { name, service, when: 'revoked' }, options);
}

function handler(decorator: string, mark: ElectionMark, options: ElectionHandlerOptions): MethodDecorator {
  return (target, name, descriptor) => {
    const place = placeOf(decorator, target, name);
    const method = methodAt(place, target, descriptor);
    const faults = new Faults();
    findNameFaults(faults, mark.name);
    faults.object('options', options, mark.when === 'elected' ? ['service', 'leaseMs'] : ['service']);
    faults.wholeMs('options.leaseMs', mark.leaseMs, { min: SHORTEST_LEASE_MS });
    faults.text('options.service', mark.service, { max: 64 });
    faults.throwIfAny(place);
    takeSeat(target, electionsSeat(mark.service), place);
    markMethod(method, { target, name }, mark);
  };
}
