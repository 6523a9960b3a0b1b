import { atMost } from './at-most.js';
import { type ReleaseAnswer, type RenewAnswer, unknown } from './backend.js';
import { runUnder } from './chain.js';
import type { Clock } from './clock.js';
import type { Courier } from './courier.js';
import { LockLostError, LockShutdownError } from './errors.js';
import type { Events } from './events.js';
import type { GiveBack } from './give-back.js';
import { Keeper } from './keeper.js';
import { Lease, type LeaseDesk, type LeaseGrant } from './lease.js';
import type { Lock } from './lock.js';

const LONGEST_RENEWAL_MS = 2_000;
const SHORTEST_RENEWAL_MS = 50;

export interface ShutdownOptions {
  /**
   * How long work under a lock may go on after shutdown began, in ms. Its locks are renewed meanwhile.
   *
   * @default 10_000
   */
  drainMs?: number;
  /**
   * How long it may go on after its signal was aborted with `LockShutdownError`, in ms. What still runs then keeps its
   * lock until the lease lapses.
   *
   * @default 2_000
   */
  abortGraceMs?: number;
}

interface HoldingsSettings {
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

  constructor({ clock, events, courier, giveBack }: HoldingsSettings) {
    this.clock = clock;
    this.#events = events;
    this.#courier = courier;
    this.#giveBack = giveBack;
    this.#keeper = new Keeper(clock, events, (lease, leaseMs) => this.renew(lease, leaseMs));
  }

  /** Takes a grant into keeping, in the same turn in which it arrived. */
  take(grant: LeaseGrant, renew: boolean): Lease {
    const lease = new Lease(grant, this);
    this.#leases.add(lease);
    if (renew) this.#keeper.keep(lease);
    return lease;
  }

  /** Runs the work and gives the lock back. How the work ended reaches the caller untouched, unless the lock was lost. */
  async workUnder<T>(lease: Lease, owner: object, work: (lock: Lock) => T | Promise<T>): Promise<T> {
    this.#works += 1;
    try {
      const value = await this.#runUnder(lease, owner, work);
      await this.#endWork(lease);
      return value;
    } finally {
      this.#works -= 1;
      this.#lookIfEmpty();
    }
  }

  renew(lease: Lease, leaseMs: number): Promise<RenewAnswer> {
    const sentAtMs = this.clock.monotonicMs();
    return this.#courier.renew(
      { ...lease.claim, leaseMs },
      {
        limitMs: Math.min(Math.max(leaseMs / 6, SHORTEST_RENEWAL_MS), LONGEST_RENEWAL_MS),
        onLate: (answer) => lease.heard(answer, sentAtMs, leaseMs),
      },
    );
  }

  async release(lease: Lease): Promise<ReleaseAnswer> {
    this.#keeper.drop(lease);
    const { key, fencingToken } = lease;
    const answer = this.#isClosed
      ? unknown(new LockShutdownError('The lock module is closed; the lease lapses by itself.', { key }))
      : await this.#giveBack.release(lease.claim, lease.confirmedAtMs + lease.leaseMs);
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
    await Promise.all(
      leases.map(async (lease) => {
        const sentAtMs = this.clock.monotonicMs();
        lease.heard(await this.renew(lease, lease.leaseMs), sentAtMs, lease.leaseMs);
      }),
    );
  }

  /** Waits until all work under locks has ended and all locks are given back; lets go of those that stay. */
  async drain({ drainMs, abortGraceMs }: Required<ShutdownOptions>): Promise<readonly Lease[]> {
    if (!(await this.#emptyWithin(drainMs))) {
      for (const lease of this.#leases) {
        const message = `The application ends, and the work under lock "${lease.key}" did not within ${drainMs} ms.`;
        lease.abort(new LockShutdownError(message, { key: lease.key }));
      }
      await this.#emptyWithin(abortGraceMs);
    }
    // Released now, a lock could be granted while its work still runs. So it lapses instead.
    const left = [...this.#leases];
    for (const lease of left) {
      this.#keeper.drop(lease);
      lease.letLapse();
    }
    return left;
  }

  close(): void {
    this.#isClosed = true;
    this.#leases.clear();
  }

  async #runUnder<T>(lease: Lease, owner: object, work: (lock: Lock) => T | Promise<T>): Promise<T> {
    try {
      return await runUnder({ lock: lease, owner, storeKey: lease.claim.key }, () => work(lease));
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
      `Lock "${lease.key}" was no longer ours when the work under it ended, so somebody else may have worked too.`,
      { key: lease.key },
    );
  }

  async #emptyWithin(limitMs: number): Promise<boolean> {
    const empty = new Promise<void>((resolve) => (this.#onEmpty = resolve));
    this.#lookIfEmpty();
    return atMost(this.clock, limitMs, empty);
  }

  #forget(lease: Lease): void {
    this.#leases.delete(lease);
    this.#lookIfEmpty();
  }

  #lookIfEmpty(): void {
    if (this.#leases.size === 0 && this.#works === 0) this.#onEmpty();
  }
}
