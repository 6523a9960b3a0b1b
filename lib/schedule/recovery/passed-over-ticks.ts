import type { ClaimTickParams } from '../../core/job-locks.js';
import { LockHandle } from '../../core/leases/lock-handle.js';
import type { Locks } from '../../core/locks.js';
import type { Job } from '../job.js';
import { type Plan, planIdOf } from '../plan/plan.js';
import { readRunHistory } from '../run-record.js';

const isPlannedTime = (plan: Plan, tickMs: number): boolean => plan.latest(tickMs) === tickMs;

/** The newest time that is not planned, in whole ms: a tick that is passed over must not be taken for one that has run. */
export function unplannedTimeBy(plan: Plan, nowMs: number): number {
  const atMs = Math.floor(nowMs);
  return isPlannedTime(plan, atMs) ? atMs - 1 : atMs;
}

/** If the process dies meanwhile, the job is blocked for no longer. */
const MAX_LEASE_MS = 5_000;

/** Claims a tick and ends it without a run. `false` if the store did not answer, or a run is in progress. */
export async function endWithoutRun(job: Job, params: ClaimTickParams, locks: Locks): Promise<boolean> {
  const leaseMs = Math.min(params.leaseMs ?? locks.defaultLeaseMs, MAX_LEASE_MS);
  const result = await locks.jobs.claimTick(job.key, { ...params, leaseMs });
  if (!(result instanceof LockHandle)) return result.kind === 'refused';
  result.endRun();
  await result.release();
  return true;
}

/**
 * What a claimed tick of the job was: `planned` by its present plan, a run of `another-plan` (which may have this time as
 * well), or a time at which nothing ran: the job was registered or resumed then, or ticks were passed over. `undefined` if the
 * store did not answer. A tick whose run is not in the history is taken for one of the present plan, if that has it.
 */
export async function originOf(
  { key, plan }: Job,
  tickMs: number,
  { jobs }: Locks,
): Promise<'planned' | 'another-plan' | 'no-run' | undefined> {
  if (!plan) return 'planned';
  const history = await readRunHistory(jobs, key).catch(() => undefined);
  if (!history) return undefined;
  // A retry may be that of a replica with another plan.
  const run = history.findLast(({ record }) => !record.isManual && record.tick.getTime() === tickMs);
  const isPlanned = isPlannedTime(plan, tickMs);
  if (!run) return isPlanned ? 'planned' : 'no-run';
  return isPlanned && (run.planId ?? planIdOf(plan)) === planIdOf(plan) ? 'planned' : 'another-plan';
}
