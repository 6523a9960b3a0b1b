import type { Agenda, Entry } from '../core/agenda.js';
import { LockLostError } from '../core/errors.js';
import type { RevokeReason } from '../core/events.js';
import { withJson } from '../core/json.js';
import type { Lease } from '../core/lease.js';
import type { Locks } from '../core/locks.js';
import { aborted } from './aborted.js';
import type { LeaderTerm } from './candidate.js';
import type { Handler, Handlers } from './handlers.js';

interface TermParts {
  readonly election: string;
  readonly lease: Lease;
  readonly locks: Locks;
  readonly agenda: Agenda;
  readonly handlers: Handlers;
}

/**
 * One leadership of this process, from its grant until the last of its work has ended. Only then is it given back, so that
 * the work of two terms never runs at once while leases hold.
 */
export class Term {
  readonly shown: LeaderTerm;
  /** Settles once the term was given back, or is left to lapse. */
  readonly over: Promise<void>;
  readonly #parts: TermParts;
  readonly #running = new Map<Promise<unknown>, string>();
  #reason: RevokeReason = 'lost';
  #limit: Entry | undefined;
  #isGivenUp = false;
  #tellOver!: () => void;

  constructor(parts: TermParts) {
    const { fencingToken, signal } = parts.lease;
    this.#parts = parts;
    this.shown = withJson({ number: fencingToken, signal });
    this.over = new Promise((resolve) => (this.#tellOver = resolve));
  }

  /** Looks at the clock. */
  get isOn(): boolean {
    return this.#parts.lease.isValid() && !this.shown.signal.aborted;
  }

  /** Like {@link isOn}, but asks the store first where the clocks of this process disagree. */
  async isConfirmed(): Promise<boolean> {
    await this.#parts.lease.isConfirmed();
    return this.isOn;
  }

  /** Revokes it now; what its work does after that, it does no longer as the leader. */
  end(reason: RevokeReason, error: Error): void {
    if (this.#parts.lease.isLost || this.shown.signal.aborted) return;
    this.#reason = reason;
    this.#parts.lease.abort(error);
  }

  /** Does the work of the term, and settles when all of it has ended and the term is given back. */
  async serve(): Promise<void> {
    const { locks, lease } = this.#parts;
    try {
      await locks.workUnder(lease, () => this.#serve());
    } catch (error) {
      // The loss of a lease was published when it happened.
      if (!(error instanceof LockLostError)) throw error;
    } finally {
      this.#tellOver();
    }
  }

  /** Runs something that belongs to the term, which is not given back before that has ended. */
  run<T>(place: string, work: () => T | Promise<T>): Promise<T> {
    const { locks, lease } = this.#parts;
    const running = locks.runUnder(lease, work);
    this.#running.set(running, place);
    const forget = () => this.#running.delete(running);
    running.then(forget, forget);
    return running;
  }

  /** Waits no longer for work that has not ended: released now, the next leader could be elected while it runs. */
  giveUp(): void {
    this.#stopLimit();
    if (this.#isGivenUp || this.#running.size === 0) return;
    this.#isGivenUp = true;
    const { locks, lease, election } = this.#parts;
    locks.letLapse(lease);
    const methods = [...new Set(this.#running.values())];
    locks.events.emit('leader-overran', { election, term: this.shown.number, methods });
    this.#tellOver();
  }

  async #serve(): Promise<void> {
    const { handlers, locks, lease, agenda, election } = this.#parts;
    const { number, signal } = this.shown;
    // Who hears of a term that is over already would wait for its end in vain.
    for (const body of handlers.elected) if (!signal.aborted) this.start(body);
    await aborted(signal);
    locks.events.emit('revoked', { election, term: number, reason: this.#reason });
    for (const farewell of handlers.revoked) this.start(farewell);
    const atMs = locks.clock.monotonicMs() + lease.grant.leaseMs;
    this.#limit = agenda.add({ atMs, run: () => this.giveUp() });
    while (this.#running.size > 0) await Promise.allSettled(this.#running.keys());
    this.#stopLimit();
  }

  /** Runs a handler as a part of the term. */
  start({ place, run }: Handler): void {
    this.run(place, () => run(this.shown)).catch((error: unknown) => {
      const { locks, election } = this.#parts;
      locks.events.emit('leader-failed', { election, term: this.shown.number, method: place, error });
    });
  }

  #stopLimit(): void {
    if (this.#limit) this.#parts.agenda.remove(this.#limit);
    this.#limit = undefined;
  }
}
