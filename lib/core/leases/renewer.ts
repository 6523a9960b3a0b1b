import type { RenewResult } from '../backend.js';
import type { Clock } from '../clock.js';
import type { Events } from '../events.js';
import { LinkedList } from '../linked-list.js';
import type { TimerWheel } from '../timer-wheel.js';
import type { Grant } from './grant.js';
import { RenewalTimer } from './renewal-timer.js';

/** A lease is renewed when a third of it has passed, and after a failure each twelfth until its deadline. */
const RENEW_AFTER = 1 / 3;
const RETRY_AFTER = 1 / 12;
/** Locks that were taken together are renewed up to this part of the lease later, each at its own time. */
const JITTER = 1 / 12;
/** Renewals within this part of the lease go together. */
const RENEWAL_STEP = 1 / 64;
/** An event loop that is late by this part of a lease is close to losing it. */
const STALL_THRESHOLD = 1 / 6;

interface RenewerParts {
  readonly clock: Clock;
  readonly timerWheel: TimerWheel;
  readonly events: Events;
  readonly renew: (grant: Grant) => Promise<RenewResult>;
}

/**
 * Looks after grants until they are dropped: renews them, and notices the end of what was not. Nothing ends that early:
 * a failed renewal is published and tried again until the lease's own deadline, and an answer about what was dropped is
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

  /** Its lease may end earlier than was known. */
  reschedule(grant: Grant): void {
    const { renewalTimer: timer } = grant;
    if (!timer) return;
    this.#parts.timerWheel.remove(timer);
    this.#schedule(timer);
  }

  /** Renews it no more. Its end is noticed as ever. */
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
    // Who heard of it may have given it back.
    if (!this.#isActive(timer)) return;
    if (!grant.isRenewed) timer.renewAtMs = Infinity;
    this.reschedule(grant);
  }

  /** Told once for all that a blocked event loop kept waiting. */
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
