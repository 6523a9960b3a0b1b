import type { RenewResult } from '../backend.js';
import type { Clock } from '../clock.js';
import type { Events } from '../events.js';
import { LinkedList } from '../linked-list.js';
import type { TimerWheel } from '../timer-wheel.js';
import type { Grant } from './grant.js';
import { RenewalTimer } from './renewal-timer.js';

/** A lease is renewed after a third of its length. After a failure it is retried after each twelfth, until it ends. */
const RENEW_AFTER = 1 / 3;
const RETRY_AFTER = 1 / 12;
/** Renewals are delayed by up to this part of the lease, so that locks that were acquired together are spread out. */
const JITTER = 1 / 12;
/** Renewals within this part of the lease are sent in one batch. */
const RENEWAL_STEP = 1 / 64;
/**
 * A delay of the event loop by this part of a lease is published as `stalled`, because the lease is close to its end.
 */
const STALL_THRESHOLD = 1 / 6;

interface RenewerParts {
  readonly clock: Clock;
  readonly timerWheel: TimerWheel;
  readonly events: Events;
  readonly renew: (grant: Grant) => Promise<RenewResult>;
}

/**
 * Renews grants until they are removed, and detects the end of those that were not renewed in time. No failure ends a
 * lease early: a failed renewal is published and retried until the lease expires. A result for a removed grant is
 * ignored.
 */
export class Renewer {
  readonly #parts: RenewerParts;
  readonly #timers = new LinkedList<RenewalTimer<Grant>>();
  #stallPublishedAtMs = -Infinity;

  constructor(parts: RenewerParts) {
    this.#parts = parts;
  }

  get grants(): readonly Grant[] {
    return Array.from(this.#timers, ({ grant }) => grant);
  }

  get count(): number {
    return this.#timers.size;
  }

  add(grant: Grant): void {
    const timer = new RenewalTimer(grant, grant.isRenewed ? renewalDueAtMs(grant) : Infinity, this.#onDue);
    timer.listNode = this.#timers.add(timer);
    grant.renewalTimer = timer;
    this.#schedule(timer);
  }

  remove(grant: Grant): void {
    const { renewalTimer: timer } = grant;
    if (!timer) return;
    grant.renewalTimer = undefined;
    timer.listNode?.remove();
    this.#parts.timerWheel.remove(timer);
  }

  /** Called when the validity of the grant has changed; it may now end earlier. */
  reschedule(grant: Grant): void {
    const { renewalTimer: timer } = grant;
    if (!timer) return;
    this.#parts.timerWheel.remove(timer);
    this.#schedule(timer);
  }

  /** Stops the renewal. The end of the lease is still detected. */
  stopRenewing(grant: Grant): void {
    const { renewalTimer: timer } = grant;
    if (!timer) return;
    grant.isRenewed = false;
    timer.renewAtMs = Infinity;
    this.reschedule(grant);
  }

  #schedule(timer: RenewalTimer<Grant>): void {
    timer.atMs = Math.min(timer.renewAtMs, timer.grant.validUntilMs);
    this.#parts.timerWheel.add(timer);
  }

  readonly #onDue = (timer: RenewalTimer<Grant>): void => {
    const grant = timer.grant;
    const nowMs = this.#parts.clock.monotonicMs();
    this.#detectStall(grant, nowMs - timer.atMs);
    grant.currentLease?.detectLoss();
    if (!this.#isActive(timer)) return;
    if (nowMs >= timer.renewAtMs) {
      timer.renewAtMs = Infinity;
      void this.#renew(timer);
    }
    this.#schedule(timer);
  };

  async #renew(timer: RenewalTimer<Grant>): Promise<void> {
    const { renew, events, clock } = this.#parts;
    const grant = timer.grant;
    const result = await renew(grant);
    if (!this.#isActive(timer) || !grant.currentLease) return;
    const { key } = grant;
    const { fencingToken } = grant.currentLease;
    if (result.kind === 'renewed') {
      timer.failures = 0;
      timer.renewAtMs = renewalDueAtMs(grant);
      events.emit('renewed', { key, fencingToken });
    } else if (result.kind === 'unknown') {
      timer.failures += 1;
      timer.renewAtMs = clock.monotonicMs() + grant.leaseMs * RETRY_AFTER * (0.5 + Math.random() / 2);
      const { failures } = timer;
      const remainingMs = grant.currentLease.remainingMs();
      events.emit('renewal-failed', { key, fencingToken, failures, remainingMs, cause: result.cause });
    }
    // A listener of the event may have released the lock.
    if (!this.#isActive(timer)) return;
    if (!grant.isRenewed) timer.renewAtMs = Infinity;
    this.reschedule(grant);
  }

  /** Publishes a blocked event loop once, not once for each grant that it delayed. */
  #detectStall({ leaseMs }: Grant, lateMs: number): void {
    const nowMs = this.#parts.clock.monotonicMs();
    if (lateMs < leaseMs * STALL_THRESHOLD || nowMs - this.#stallPublishedAtMs < lateMs) return;
    this.#stallPublishedAtMs = nowMs;
    this.#parts.events.emit('stalled', { lateMs, leaseMs, held: this.count });
  }

  #isActive(timer: RenewalTimer<Grant>): boolean {
    return timer.grant.renewalTimer === timer;
  }
}

function renewalDueAtMs({ confirmedAtMs, leaseMs }: Grant): number {
  const atMs = confirmedAtMs + leaseMs * (RENEW_AFTER + Math.random() * JITTER);
  const stepMs = leaseMs * RENEWAL_STEP;
  return Math.ceil(atMs / stepMs) * stepMs;
}
