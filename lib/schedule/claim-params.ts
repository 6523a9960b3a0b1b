import { createHash } from 'node:crypto';
import type { TickClaim } from '../core/tick.js';
import { deployStoreKey } from '../core/store-key.js';
import type { ClaimTickParams } from '../core/job-locks.js';
import type { Locks } from '../core/locks.js';
import { OptionErrors } from '../core/option-errors.js';
import { collectLeaseLimitErrors } from '../core/options.js';
import { type Job, isPlanned, retriesDeadRuns } from './job.js';
import { mayOverlap, ownStoreKey } from './tick-keys.js';
import { longestPeriodMs } from './plan/longest-period.js';
import { type Tick, createTick } from './plan/tick-calculator.js';

/** How early a replica whose clock is ahead may claim a tick: a tenth of the period, at most 500 ms. */
const MAX_EARLY_RATIO = 0.1;
const MAX_EARLY_MS = 500;
/** A tick that is claimed after the next one would be refused, because the newer one was claimed already. */
const MAX_JITTER_RATIO = 0.8;
/** Older ticks are not run, so that a replica that slept for hours does not start a run that is long out of date. */
const STALE_AFTER_PERIODS = 10;
const STALE_AFTER_MIN_MS = 60_000;
const STALE_AFTER_MAX_MS = 24 * 60 * 60 * 1_000;
/** Long enough for the watchers of a run to claim the tick again after each attempt. */
const STALE_AFTER_LEASES = 3;

const DEFAULT_ATTEMPTS = 3;

/** The maximum time for which the store keeps a tick with its own key: 400 days. */
const MAX_RETENTION_MS = 400 * 24 * 60 * 60 * 1_000;

/** How many ticks of a job are kept for the sake of an older one with a longer period. */
const MAX_KEPT_TICKS = 1_000;

/**
 * The parameters that claim a tick of the job. A missed tick may be older than a tick whose timer fired; `claimed` is then the
 * newest tick that was claimed before it. If its run died, only its own limit says whether it may still be retried.
 */
export function buildClaimParams(job: Job, tick: Tick, locks: Locks, claimed?: Tick): ClaimTickParams {
  const { leaseMs, missedWithinMs = tick.periodMs, maxAttempts = DEFAULT_ATTEMPTS } = job.options;
  const claim = {
    tickMs: tick.tickMs,
    maxEarlyMs: maxEarlyMsOf(job, tick),
    staleAfterMs: claimed ? missedWithinMs : staleAfterMsOf(job, tick, locks),
    ...(claimed && { takeoverWithinMs: staleAfterMsOf(job, claimed, locks) }),
    maxAttempts: retriesDeadRuns(job) ? maxAttempts : 1,
  };
  return { leaseMs, ...withStoreKey(job, tick, claim, locks) };
}

/** How early the tick may be claimed, by the store's clock. */
export const maxEarlyMsOf = ({ options: { maxEarlyMs } }: Job, { periodMs }: Tick) =>
  maxEarlyMs ?? Math.round(Math.min(periodMs * MAX_EARLY_RATIO, MAX_EARLY_MS));

function staleAfterMsOf(job: Job, tick: Tick, locks: Locks): number {
  const { staleAfterMs, leaseMs = locks.defaultLeaseMs } = job.options;
  if (staleAfterMs !== undefined) return staleAfterMs;
  const usualMs = Math.min(tick.periodMs * STALE_AFTER_PERIODS, STALE_AFTER_MAX_MS);
  const retryMs = retriesDeadRuns(job) ? leaseMs * STALE_AFTER_LEASES : 0;
  const intervalMs = maxFiringDelayMsOf(job, tick);
  const lateMs = intervalMs > 0 ? intervalMs + maxJitterMsOf(job, tick) : 0;
  return Math.max(usualMs, STALE_AFTER_MIN_MS + lateMs, retryMs);
}

/** How long after its tick a timer may fire: an interval fires at any phase of its period, and drifts. */
export const maxFiringDelayMsOf = ({ plan }: Job, { periodMs }: Tick) =>
  plan && plan.toleranceMs.late > 0 ? periodMs + plan.toleranceMs.late : 0;

function withStoreKey(job: Job, tick: Tick, claim: TickClaim, locks: Locks): ClaimTickParams {
  const { deployKey = '' } = job.options;
  if (!isPlanned(job)) {
    const anyTime = { tickMs: 0, staleAfterMs: Number.MAX_SAFE_INTEGER };
    return { tick: { ...claim, ...anyTime }, storeKey: deployStoreKey(locks.namespace, job.key, deployKey) };
  }
  if (!mayOverlap(job)) return { tick: claim };
  const afterMs = retentionMsOf(job, tick, locks);
  // An older tick may have a longer period than this one, and then may be claimed for longer.
  const longest = { ...tick, periodMs: longestPeriodMs(job.plan) };
  const longestMs = Math.min(retentionMsOf(job, longest, locks), tick.periodMs * MAX_KEPT_TICKS);
  const beforeMs = Math.floor(tick.tickMs - Math.max(afterMs, longestMs));
  const keyOf = (tickMs: number) => ownStoreKey(job.key, tickMs, locks);
  const cleanUp = { afterMs, fromKey: keyOf(0), beforeKey: keyOf(beforeMs) };
  return { tick: { ...claim, cleanUp }, storeKey: keyOf(tick.tickMs) };
}

/**
 * How long the store must keep the key of the tick: until it can no longer be claimed, and its last run has ended. As a missed
 * tick, it may be claimed by a replica of the next deployment, even if this one runs none.
 */
function retentionMsOf(job: Job, tick: Tick, locks: Locks): number {
  const { leaseMs = locks.defaultLeaseMs, missedWithinMs = tick.periodMs } = job.options;
  const staleAfterMs = staleAfterMsOf(job, tick, locks);
  return Math.min(
    Math.max(staleAfterMs, missedWithinMs) + leaseMs + maxEarlyMsOf(job, tick),
    MAX_RETENTION_MS,
  );
}

/** The same in all replicas. With random delays, the more replicas there are, the earlier the first of them would start. */
export function jitterMsOf(job: Job, tick: Tick): number {
  const maxMs = maxJitterMsOf(job, tick);
  if (maxMs === 0) return 0;
  const hash = createHash('sha1').update(`${job.key}@${tick.tickMs}`).digest();
  return Math.floor((hash.readUInt32BE() / 2 ** 32) * maxMs);
}

export const maxJitterMsOf = ({ options: { jitterMs = 0 } }: Job, { periodMs }: Tick) =>
  Math.min(jitterMs, periodMs * MAX_JITTER_RATIO);

/** @throws LockConfigError for a lease that the store cannot keep, and a jitter with which ticks could start only when stale */
export function checkJobOptions(job: Job, locks: Locks): void {
  const { key, plan, options } = job;
  const errors = new OptionErrors();
  collectLeaseLimitErrors(errors, 'leaseMs', options.leaseMs, locks.leaseLimits);
  if (plan) {
    const nowMs = locks.clock.wallMs();
    const tick = createTick(plan, plan.next(nowMs) ?? nowMs);
    const staleAfterMs = staleAfterMsOf(job, tick, locks);
    const maxJitterMs = maxJitterMsOf(job, tick);
    const maxFiringDelayMs = maxFiringDelayMsOf(job, tick);
    if (maxJitterMs >= staleAfterMs) {
      errors.add(
        `expected jitterMs to be less than staleAfterMs, which is ${staleAfterMs} by default; set a longer staleAfterMs as well`,
      );
    } else if (maxJitterMs + maxFiringDelayMs >= staleAfterMs) {
      errors.add(
        `expected staleAfterMs to be more than ${maxJitterMs + maxFiringDelayMs}, which is 1.5 intervals and the jitter, got ` +
          `${staleAfterMs}: an interval fires at any time of its period, so all its ticks could be stale`,
      );
    }
  }
  errors.throwIfAny(`Wrong options of the job '${key}'`);
}
