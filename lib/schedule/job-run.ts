import { LockLostError, LockShutdownError } from '../core/errors.js';
import { formatReason } from '../core/format.js';
import { withJson } from '../core/json.js';
import type { Lease } from '../core/leases/lease.js';
import type { Locks } from '../core/locks.js';
import type { CronRun, Job } from './job.js';
import { type CronRunOutcome, type CronRunRecord, encodeRecord } from './run-history.js';

interface JobRun {
  readonly locks: Locks;
  readonly job: Job;
  readonly tickMs: number;
  readonly lease: Lease;
}

/** Runs the body of a job under its claimed lease, and records the start and the end of the run. */
export function runJob(
  { locks, job, tickMs, lease }: JobRun,
  body: (run: CronRun) => Promise<unknown>,
): Promise<unknown> {
  const { fencingToken, signal } = lease;
  const { attempt } = lease.grant;
  const run: CronRun = withJson({ tick: new Date(tickMs), attempt, fencingToken, signal });
  locks.events.emit('tick-claimed', { job: job.key, tick: run.tick, fencingToken, attempt });
  const recordEnd = recordStart(locks, job, run);
  return locks.runAndRelease(lease, async () => {
    try {
      const value = await body(run);
      lease.endRun();
      recordEnd(lease.isLost ? 'lost' : 'completed');
      return value;
    } catch (error) {
      const isInterrupted = signal.aborted && signal.reason instanceof LockShutdownError;
      if (!isInterrupted) lease.endRun();
      recordEnd(isInterrupted ? 'interrupted' : outcomeUnlessLost('failed', lease, error), error);
      throw error;
    }
  });
}

/** Returns the function that records the end. */
function recordStart(locks: Locks, job: Job, { tick, attempt, fencingToken }: CronRun) {
  const { clock, instance } = locks;
  const record = (text: CronRunRecord) => void locks.appendHistory(job.key, encodeRecord(text));
  const startRecord: CronRunRecord = {
    ...{ tick, attempt, instance, fencingToken, started: new Date(clock.wallMs()) },
    ...{ ended: null, outcome: 'running', error: null },
  };
  record(startRecord);
  return (outcome: CronRunOutcome, cause?: unknown): void => {
    const error = cause === undefined ? null : formatReason(cause);
    record({ ...startRecord, ended: new Date(clock.wallMs()), outcome, error });
  };
}

const outcomeUnlessLost = (outcome: CronRunOutcome, lease: Lease, error: unknown): CronRunOutcome =>
  lease.isLost || isLockLost(error) ? 'lost' : outcome;

/** Never throws: `instanceof` on a proxy may, and that error would hide the one that the job threw. */
function isLockLost(error: unknown): boolean {
  try {
    return error instanceof LockLostError;
  } catch {
    return false;
  }
}
