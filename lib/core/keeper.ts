import type { RenewAnswer } from './backend.js';
import type { Clock, Timer } from './clock.js';
import type { Events } from './events.js';
import type { Lease } from './lease.js';

/** A lease is renewed when a third of it has passed, and after a failure each twelfth until its deadline. */
const RENEW_AFTER = 1 / 3;
const RETRY_AFTER = 1 / 12;

type Renew = (lease: Lease) => Promise<RenewAnswer>;

/**
 * Renews leases until they are dropped or lost. Nothing ends its loop early: a failure is published and tried again
 * until the lease's own deadline, and an answer to somebody who has left is ignored.
 */
export class Keeper {
  readonly #clock: Clock;
  readonly #events: Events;
  readonly #renew: Renew;
  readonly #timers = new Map<Lease, Timer>();

  constructor(clock: Clock, events: Events, renew: Renew) {
    this.#clock = clock;
    this.#events = events;
    this.#renew = renew;
  }

  keep(lease: Lease): void {
    this.#sleep(lease, lease.confirmedAtMs + lease.leaseMs * RENEW_AFTER - this.#clock.monotonicMs(), 0);
  }

  drop(lease: Lease): void {
    this.#timers.get(lease)?.cancel();
    this.#timers.delete(lease);
  }

  #sleep(lease: Lease, delayMs: number, failures: number): void {
    this.#timers.set(
      lease,
      this.#clock.after(Math.max(delayMs, 0), () => void this.#turn(lease, failures)),
    );
  }

  async #turn(lease: Lease, failures: number): Promise<void> {
    const answer = await this.#renew(lease);
    if (!this.#timers.has(lease)) return;
    if (answer.kind === 'renewed') {
      this.#events.emit('renewed', { key: lease.key, fencingToken: lease.fencingToken });
      this.keep(lease);
    } else if (answer.kind === 'unknown') {
      const { key, fencingToken } = lease;
      const { cause } = answer;
      this.#events.emit('renewal-failed', {
        key,
        fencingToken,
        failures: failures + 1,
        remainingMs: lease.remainingMs(),
        cause,
      });
      this.#sleep(lease, lease.leaseMs * RETRY_AFTER * (0.5 + Math.random() / 2), failures + 1);
    }
  }
}
