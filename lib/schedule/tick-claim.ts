import { createHash } from 'node:crypto';
import type { TickClaim } from '../core/backend.js';
import { deployStoreKey, tickStoreKey } from '../core/key.js';
import type { ClaimTickParams, Locks } from '../core/locks.js';
import type { OptionErrors } from '../core/option-errors.js';
import { type Job, retriesDeadRuns, runsMissedTicks } from './job.js';
import type { Plan } from './plan/plan.js';
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

const MAX_TICKS = 100;

const maxAttemptsOf = (job: Job) =>
  retriesDeadRuns(job) ? (job.options.maxAttempts ?? DEFAULT_ATTEMPTS) : 1;

/** The parameters that claim a tick of the job. A missed tick may be older than a tick whose timer fired. */
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

/** How early the tick may be claimed, by the store's clock. */
export const maxEarlyMsOf = ({ options: { maxEarlyMs } }: Job, { periodMs }: Tick) =>
  maxEarlyMs ?? Math.round(Math.min(periodMs * MAX_EARLY_RATIO, MAX_EARLY_MS));

function staleAfterMsOf(job: Job, { periodMs }: Tick, locks: Locks): number {
  const { staleAfterMs, leaseMs = locks.defaultLeaseMs } = job.options;
  if (staleAfterMs !== undefined) return staleAfterMs;
  const usualMs = Math.min(Math.max(periodMs * STALE_AFTER_PERIODS, STALE_AFTER_MIN_MS), STALE_AFTER_MAX_MS);
  return retriesDeadRuns(job) ? Math.max(usualMs, leaseMs * STALE_AFTER_LEASES) : usualMs;
}

interface StoreKeyParts {
  readonly locks: Locks;
  /** How long after its time the tick may still be claimed, as a regular or a missed tick. */
  readonly claimableMs: number;
}

/** Each tick that may overlap has its own store key, and so has each deployment. All other ticks of a job share one key. */
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

/** The newest planned ticks whose keys the store may still have, at most 100; `undefined` if the ticks share one key. */
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

/** The same in all replicas. With random delays, the more replicas there are, the earlier the first of them would start. */
export function jitterMsOf({ key, options: { jitterMs = 0 } }: Job, { tickMs, periodMs }: Tick): number {
  if (jitterMs === 0) return 0;
  const hash = createHash('sha1').update(`${key}@${tickMs}`).digest();
  return Math.floor((hash.readUInt32BE() / 2 ** 32) * Math.min(jitterMs, periodMs * MAX_JITTER_RATIO));
}

/** Reports a jitter with which the next tick could start only when it is stale. */
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
    `expected jitterMs to be less than staleAfterMs, which is ${staleAfterMs} by default; set a longer staleAfterMs as well`,
  );
}
