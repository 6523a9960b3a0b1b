import { atMost } from './at-most.js';
import { type ReleaseAnswer, type RenewAnswer, unknown } from './backend.js';
import { runUnder } from './chain.js';
import { type Clock, momentOf } from './clock.js';
import type { Courier } from './courier.js';
import { LockLostError, LockShutdownError } from './errors.js';
import type { Events } from './events.js';
import type { GiveBack } from './give-back.js';
import { Keeper } from './keeper.js';
import { Lease, type LeaseDesk, type LeaseGrant } from './lease.js';
import type { Lock } from './lock.js';
import type { ShutdownOptions } from './options.js';

const LONGEST_RENEWAL_MS = 2_000;
const SHORTEST_RENEWAL_MS = 50;

interface HoldingsParts {
  readonly clock: Clock;
  readonly events: Events;
  readonly courier: Courier;
  readonly giveBack: GiveBack;
}

/** The locks this process holds: keeps them renewed, gives them back, and empties itself at shutdown. */
export class Holdings implements LeaseDesk {
  readonly clock: Clock;
  readonly #events: Events;
  readonly #courier: Courier;
  readonly #giveBack: GiveBack;
  readonly #keeper: Keeper;
  readonly #leases = new Set<Lease>();
  #works = 0;
  #isClosed = false;
  #onEmpty: () => void = () => undefined;

  constructor({ clock, events, courier, giveBack }: HoldingsParts) {
    this.clock = clock;
    this.#events = events;
    this.#courier = courier;
    this.#giveBack = giveBack;
    this.#keeper = new Keeper(clock, events, (lease) => this.renew(lease, lease.leaseMs));
  }

  /** Takes a grant into keeping, in the same turn in which it arrived. */
  take(grant: LeaseGrant, renew: boolean): Lease {
    const lease = new Lease(grant, this);
    this.#leases.add(lease);
    if (renew) this.#keeper.keep(lease);
    return lease;
  }

  /** Runs the work and gives the lock back. How the work ended reaches the caller untouched, unless the lock was lost. */
  async workUnder<T>(lease: Lease, locks: object, work: (lock: Lock) => T | Promise<T>): Promise<T> {
    this.#works += 1;
    try {
      const value = await this.#runUnder(lease, locks, work);
      await this.#endWork(lease);
      return value;
    } finally {
      this.#works -= 1;
      this.#lookIfEmpty();
    }
  }

  /** Asks for a renewal. The lease has heard the answer when this settles, and hears one that comes later. */
  async renew(lease: Lease, leaseMs: number): Promise<RenewAnswer> {
    const limitMs = Math.min(Math.max(leaseMs / 6, SHORTEST_RENEWAL_MS), LONGEST_RENEWAL_MS);
    const sentAt = momentOf(this.clock);
    const renewal = { sentAt, leaseMs, lastsUntilMs: sentAt.monotonicMs + limitMs + leaseMs };
    const hear = (answer: RenewAnswer) => lease.heard(answer, renewal);
    lease.sent(renewal);
    const answer = await this.#courier.renew({ ...lease.claim, leaseMs }, { limitMs, onLate: hear });
    hear(answer);
    return answer;
  }

  async release(lease: Lease): Promise<ReleaseAnswer> {
    this.#keeper.drop(lease);
    const { key, fencingToken } = lease;
    if (this.#isClosed) {
      const message = `The application has ended, so lock "${key}" cannot be given back: it lapses by itself.`;
      return unknown(new LockShutdownError(message, { key }));
    }
    const answer = await this.#giveBack.release(lease.claim, lease.lastsUntilMs);
    if (answer.kind === 'released') this.#events.emit('released', { key, fencingToken });
    if (answer.kind === 'unknown') {
      this.#events.emit('unavailable', { key, operation: 'release', cause: answer.cause });
    }
    this.#forget(lease);
    return answer;
  }

  onLost(lease: Lease, error: LockLostError): void {
    this.#keeper.drop(lease);
    this.#forget(lease);
    this.#events.emit('lost', { key: lease.key, fencingToken: lease.fencingToken, error });
  }

  /** Asks at once about the leases on this key, instead of at their next renewal. */
  async confirm(storeKey: string): Promise<void> {
    const leases = [...this.#leases].filter((lease) => lease.claim.key === storeKey);
    await Promise.all(leases.map((lease) => this.renew(lease, lease.leaseMs)));
  }

  /** Waits until all work under locks has ended and all locks are given back; lets go of those that stay. */
  async drain({ drainMs, abortGraceMs }: Required<ShutdownOptions>): Promise<readonly Lease[]> {
    if (!(await this.#emptyWithin(drainMs))) {
      for (const lease of this.#leases) {
        const message =
          `The application is shutting down, and the work under lock "${lease.key}" did not end in time. ` +
          `End it now, or raise shutdown.drainMs.`;
        lease.abort(new LockShutdownError(message, { key: lease.key }));
      }
      await this.#emptyWithin(abortGraceMs);
    }
    // Released now, a lock could be granted while its work still runs. So it lapses instead.
    return this.#letLapse();
  }

  /** Looks after nothing any more, and sends nothing. Whose work still runs is told. */
  close(): void {
    this.#isClosed = true;
    for (const lease of this.#letLapse()) {
      const message = `The application has ended before the work under lock "${lease.key}".`;
      lease.abort(new LockShutdownError(message, { key: lease.key }));
    }
    this.#leases.clear();
  }

  get isClosed(): boolean {
    return this.#isClosed;
  }

  #letLapse(): readonly Lease[] {
    for (const lease of this.#leases) {
      this.#keeper.drop(lease);
      lease.letLapse();
    }
    return [...this.#leases];
  }

  async #runUnder<T>(lease: Lease, locks: object, work: (lock: Lock) => T | Promise<T>): Promise<T> {
    try {
      return await runUnder({ lock: lease, locks, storeKey: lease.claim.key }, () => work(lease));
    } catch (error) {
      await lease[Symbol.asyncDispose]();
      throw error;
    }
  }

  /** @throws LockLostError if the work did not have the lock to its end */
  async #endWork(lease: Lease): Promise<void> {
    if (lease.isLost) lease.throwIfLost();
    if (!lease.isHeld) return;
    const wasValid = lease.isValid();
    const answer = await lease.giveBack();
    if (answer.kind === 'released' || (answer.kind === 'unknown' && wasValid)) return;
    throw new LockLostError(
      `Lock "${lease.key}" was no longer ours when the work under it ended, so somebody else may have worked too. ` +
        `Check the fencing token where you write; raise leaseMs if this process pauses for long.`,
      { key: lease.key },
    );
  }

  async #emptyWithin(limitMs: number): Promise<boolean> {
    const empty = new Promise<void>((resolve) => (this.#onEmpty = resolve));
    this.#lookIfEmpty();
    return atMost(this.clock, limitMs, empty, { awaited: true });
  }

  #forget(lease: Lease): void {
    this.#leases.delete(lease);
    this.#lookIfEmpty();
  }

  #lookIfEmpty(): void {
    if (this.#leases.size === 0 && this.#works === 0) this.#onEmpty();
  }
}
