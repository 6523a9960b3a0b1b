import { createHash } from 'node:crypto';
import type { TickClaim } from '../core/backend.js';
import type { OptionErrors } from '../core/option-errors.js';
import { deployStoreKey, tickStoreKey } from '../core/key.js';
import type { Locks, ClaimTickParams } from '../core/locks.js';
import { type Job, runsMissedTicks, retriesDeadRuns } from './job.js';
import type { Plan } from './plan/plan.js';
import { type Tick, createTick } from './plan/tick-calculator.js';

/** A replica whose clock is ahead may claim a tick so much before its time by the store's clock. */
const MAX_EARLY_RATIO = 0.1;
const MAX_EARLY_MS = 500;
/** A tick that began after the next one would be dropped, as that is the newer one. */
const MAX_JITTER_RATIO = 0.8;
/** Older ticks are not run any more, so that a replica that slept does not catch up with what nobody expects. */
const STALE_AFTER_PERIODS = 10;
const STALE_AFTER_MIN_MS = 60_000;
const STALE_AFTER_MAX_MS = 24 * 60 * 60 * 1_000;
/** Long enough for whoever watches a run to come back after each of its attempts. */
const STALE_AFTER_LEASES = 3;

const DEFAULT_ATTEMPTS = 3;

/** Of a tick that has a key of its own. */
const MAX_RETENTION_MS = 400 * 24 * 60 * 60 * 1_000;

const MAX_TICKS = 100;

/** Farther ahead than any clock is. */
const FAR_AHEAD_MS = 10 * 365 * 24 * 60 * 60 * 1_000;

const maxAttemptsOf = (job: Job) =>
  retriesDeadRuns(job) ? (job.options.maxAttempts ?? DEFAULT_ATTEMPTS) : 1;

/** How a tick of the job is claimed. A missed one may be older than one whose timer fired. */
export function buildClaimParams(
  job: Job,
  tick: Tick,
  locks: Locks,
  { isMissed = false } = {},
): ClaimTickParams {
  const { leaseMs, missedWithinMs = tick.periodMs } = job.options;
  const staleAfterMs = staleAfterMsOf(job, tick, locks);
  const claim = {
    tickMs: tick.tickMs,
    maxEarlyMs: maxEarlyMsOf(job, tick),
    staleAfterMs: isMissed ? missedWithinMs : staleAfterMs,
    maxAttempts: maxAttemptsOf(job),
  };
  const claimableMs = runsMissedTicks(job) ? Math.max(staleAfterMs, missedWithinMs) : staleAfterMs;
  return { leaseMs, ...withStoreKey(job, claim, { locks, claimableMs }) };
}

/** Is refused as stale if nobody runs the tick; otherwise as the tick would be. Claims nothing. */
export function buildDeadRunProbe(job: Job, tick: Tick, locks: Locks): ClaimTickParams {
  const params = buildClaimParams(job, tick, locks);
  return { ...params, tick: { ...params.tick, staleAfterMs: -1 } };
}

/** Asks whether a dead run of the tick may be taken over, which is answered by this `tickMs`. Claims nothing. */
export function buildTakeoverProbe(
  job: Job,
  tick: Tick,
  locks: Locks,
): { readonly params: ClaimTickParams; readonly tickMs: number } {
  const params = buildClaimParams(job, tick, locks);
  return { params: { ...params, tick: toFarFutureClaim(params.tick, locks) }, tickMs: params.tick.tickMs };
}

/**
 * Is refused as `claimed` if the tick is not newer than those noted where the job would claim it with the other `overlap`, and
 * as `stale` otherwise. Registrations stand where ticks do not overlap. Claims nothing.
 */
export function buildOverlapChangeProbe(
  { key, options }: Job,
  { tickMs }: Tick,
  { namespace }: Locks,
): ClaimTickParams {
  const tick = { tickMs, maxEarlyMs: 0, staleAfterMs: -1 };
  return options.overlap === 'allow' ? { tick } : { tick, storeKey: tickStoreKey(namespace, key, tickMs) };
}

/** Clocks that differ by less are not worth a warning. */
export const CLOCK_SKEW_WARNING_MS = 60_000;

/**
 * Is refused as `claimed` if the newest claimed tick is later, by {@link CLOCK_SKEW_WARNING_MS} or more, than any that may be claimed now by the store's
 * clock. Claims nothing.
 */
export function buildFutureClaimProbe(job: Job, tick: Tick, storeMs: number) {
  const maxEarlyMs = maxEarlyMsOf(job, tick);
  const tickMs = Math.ceil(storeMs + maxEarlyMs) + CLOCK_SKEW_WARNING_MS;
  const params: ClaimTickParams = { tick: { tickMs, maxEarlyMs: 0, staleAfterMs: -1 } };
  return { maxEarlyMs, params };
}

/** Asks for the store's time and for a dead run, and registers a job that catches up. Claims nothing. */
export function buildRecoveryProbe(job: Job & { readonly plan: Plan }, locks: Locks): ClaimTickParams {
  const nowMs = locks.clock.wallMs();
  const latest = createTick(job.plan, job.plan.latest(nowMs) ?? nowMs);
  const { tick: claim, storeKey } = buildClaimParams(job, latest, locks);
  const farFuture = toFarFutureClaim(claim, locks);
  return runsMissedTicks(job)
    ? { tick: { ...farFuture, isRegistration: true } }
    : { tick: farFuture, storeKey };
}

const toFarFutureClaim = ({ staleAfterMs, maxAttempts = 1 }: TickClaim, { clock }: Locks): TickClaim => ({
  tickMs: Math.floor(clock.wallMs()) + FAR_AHEAD_MS,
  ...{ maxEarlyMs: 0, staleAfterMs, maxAttempts },
});

const maxEarlyMsOf = ({ options: { maxEarlyMs } }: Job, { periodMs }: Tick) =>
  maxEarlyMs ?? Math.round(Math.min(periodMs * MAX_EARLY_RATIO, MAX_EARLY_MS));

function staleAfterMsOf(job: Job, { periodMs }: Tick, locks: Locks): number {
  const { staleAfterMs, leaseMs = locks.defaultLeaseMs } = job.options;
  if (staleAfterMs !== undefined) return staleAfterMs;
  const usualMs = Math.min(Math.max(periodMs * STALE_AFTER_PERIODS, STALE_AFTER_MIN_MS), STALE_AFTER_MAX_MS);
  return retriesDeadRuns(job) ? Math.max(usualMs, leaseMs * STALE_AFTER_LEASES) : usualMs;
}

interface StoreKeyParts {
  readonly locks: Locks;
  /** How long after the tick it may be claimed in any way. */
  readonly claimableMs: number;
}

/** Ticks that may overlap have a key each, and so has each deploy; all others of a job have one together. */
function withStoreKey(
  { key, plan, options }: Job,
  tick: TickClaim,
  { locks: { namespace, defaultLeaseMs }, claimableMs }: StoreKeyParts,
): ClaimTickParams {
  const { leaseMs = defaultLeaseMs, overlap, deployKey } = options;
  if (!plan) {
    const anyTime = { tickMs: 0, staleAfterMs: Number.MAX_SAFE_INTEGER };
    return { tick: { ...tick, ...anyTime }, storeKey: deployStoreKey(namespace, key, deployKey ?? '') };
  }
  if (overlap !== 'allow') return { tick };
  const afterMs = Math.min(claimableMs + leaseMs + tick.maxEarlyMs, MAX_RETENTION_MS);
  const keyOf = (tickMs: number) => tickStoreKey(namespace, key, Math.max(tickMs, 0));
  const cleanUp = { afterMs, fromKey: keyOf(0), beforeKey: keyOf(Math.floor(tick.tickMs - afterMs)) };
  return { tick: { ...tick, cleanUp }, storeKey: keyOf(tick.tickMs) };
}

/** The planned ticks whose keys the store may still know, the newest ones at most; `undefined` where they share one key. */
export function listStoredTicks(
  job: Job & { readonly plan: Plan },
  nowMs: number,
  locks: Locks,
): readonly Tick[] | undefined {
  const { plan } = job;
  const latestMs = plan.latest(nowMs);
  if (job.options.overlap !== 'allow' || latestMs === undefined) return undefined;
  const newest = createTick(plan, latestMs);
  const retentionMs = buildClaimParams(job, newest, locks).tick.cleanUp?.afterMs ?? 0;
  const ticks: Tick[] = [newest];
  let atMs = plan.next(latestMs - Math.min(retentionMs, newest.periodMs * MAX_TICKS)) ?? latestMs;
  for (let tick = createTick(plan, atMs); tick.tickMs < latestMs; tick = createTick(plan, atMs)) {
    ticks.splice(-1, 0, tick);
    atMs += tick.periodMs;
  }
  return ticks.slice(-MAX_TICKS);
}

/** The same for all replicas, so that as many of them as there are do not make an early start likely. */
export function jitterMsOf({ key, options: { jitterMs = 0 } }: Job, { tickMs, periodMs }: Tick): number {
  if (jitterMs === 0) return 0;
  const hash = createHash('sha1').update(`${key}@${tickMs}`).digest();
  return Math.floor((hash.readUInt32BE() / 2 ** 32) * Math.min(jitterMs, periodMs * MAX_JITTER_RATIO));
}

/** Finds a jitter with which the next tick might begin when it is stale. */
export function collectJitterErrors(
  errors: OptionErrors,
  job: Job & { readonly plan: Plan },
  locks: Locks,
): void {
  const { jitterMs = 0 } = job.options;
  const nowMs = locks.clock.wallMs();
  const tick = createTick(job.plan, job.plan.next(nowMs) ?? nowMs);
  const staleAfterMs = staleAfterMsOf(job, tick, locks);
  if (Math.min(jitterMs, tick.periodMs * MAX_JITTER_RATIO) < staleAfterMs) return;
  errors.add(
    `expected jitterMs to be less than staleAfterMs, which is ${staleAfterMs} by default; give a longer staleAfterMs as well`,
  );
}
