import { Faults } from '../core/faults.js';
import { methodAt, placeOf } from '../decorators/method-place.js';
import { takeSeat } from '../decorators/seat.js';
import { findNameFaults } from './election.options.js';
import { electionsSeat } from './leader-election.js';
import { type ElectionMark, markMethod } from './marks.js';

export interface ElectionHandlerOptions {
  /** The name of the module whose elections are meant. */
  service?: string;
}

/**
 * Runs the method, with the {@link LeaderTerm}, when this process is elected. It joins the election by itself.
 *
 * It may run for as long as the term: end it when `term.signal` aborts, since the leadership is not given back, and this
 * process does not stand again, before it has. If it returns earlier the process leads on; if it throws, that is logged
 * and published, and the process leads on. Inside, `currentLock()` is the lease of the term.
 */
export const OnElected = (name: string, options: ElectionHandlerOptions = {}): MethodDecorator =>
  handler('OnElected', { name, service: serviceOf(options), when: 'elected' }, options);

/**
 * Runs the method, with the {@link LeaderTerm}, as soon as this process leads no more: the lease was lost, resigned, or the
 * application shuts down. Where the leadership is given back, that is done when the method has ended.
 */
export const OnRevoked = (name: string, options: ElectionHandlerOptions = {}): MethodDecorator =>
  handler('OnRevoked', { name, service: serviceOf(options), when: 'revoked' }, options);

function handler(decorator: string, mark: ElectionMark, options: ElectionHandlerOptions): MethodDecorator {
  return (target, name, descriptor) => {
    const place = placeOf(decorator, target, name);
    const method = methodAt(place, target, descriptor);
    const faults = new Faults();
    findNameFaults(faults, mark.name);
    faults.object('options', options, ['service']);
    faults.text('options.service', mark.service, { max: 64 });
    faults.throwIfAny(place);
    takeSeat(target, electionsSeat(mark.service), place);
    markMethod(method, mark);
  };
}

/** Of options that nobody has checked yet. */
const serviceOf = (options: ElectionHandlerOptions) => ({ ...options }).service;
