import type { ClaimTickParams } from '../../core/job-locks.js';
import { LockHandle } from '../../core/leases/lock-handle.js';
import type { Locks } from '../../core/locks.js';
import type { Job } from '../job.js';
import type { Plan } from '../plan/plan.js';
import { readRunHistory } from '../run-history.js';

export const isPlannedTime = (plan: Plan, tickMs: number): boolean => plan.latest(tickMs) === tickMs;

/** The newest time that is not planned, in whole ms: a tick that is passed over must not be taken for one that has run. */
export function unplannedTimeBy(plan: Plan, nowMs: number): number {
  const atMs = Math.floor(nowMs);
  return isPlannedTime(plan, atMs) ? atMs - 1 : atMs;
}

/** Claims a tick and ends it without a run. `false` if the store did not answer, or a run is in progress. */
export async function endWithoutRun(job: Job, params: ClaimTickParams, locks: Locks): Promise<boolean> {
  const result = await locks.jobs.claimTick(job.key, params);
  if (!(result instanceof LockHandle)) return result.kind === 'refused';
  result.endRun();
  await result.release();
  return true;
}

/**
 * Whether the tick, which looks as if its run had died, was only passed over: its process has died then, or did not know that it
 * had claimed the tick. It is not planned, and the history has no run of it. `undefined` if the store did not answer.
 */
export async function wasPassedOver(
  { key, plan }: Job,
  tickMs: number,
  { jobs }: Locks,
): Promise<boolean | undefined> {
  if (!plan || isPlannedTime(plan, tickMs)) return false;
  const history = await readRunHistory(jobs, key).catch(() => undefined);
  return history && !history.some(({ record }) => !record.isManual && record.tick.getTime() === tickMs);
}
