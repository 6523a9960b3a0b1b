import type { LockHandle } from '../core/leases/lock-handle.js';
import type { Locks } from '../core/locks.js';
import type { Job } from './job.js';

/** The reason with which the signal of a run aborts after `maxRunMs`. Its name is that of `AbortSignal.timeout()`. */
class RunTimeoutError extends Error {
  override readonly name = 'TimeoutError';
}

interface LimitedRun {
  readonly locks: Locks;
  readonly job: Job;
  readonly lock: LockHandle;
}

/** Whether the run took longer than `maxRunMs`, and nothing else had ended it before. */
export const isTimedOut = (signal: AbortSignal): boolean => signal.reason instanceof RunTimeoutError;

/**
 * Aborts the signal of a run that takes longer than `maxRunMs`. Work that still runs one lease later is given up: the
 * returned promise rejects, although the work may go on. It could otherwise block its job for ever.
 */
export async function runWithTimeLimit(
  { locks, job, lock }: LimitedRun,
  run: () => Promise<unknown>,
): Promise<unknown> {
  const { clock, defaultLeaseMs } = locks;
  const { maxRunMs, leaseMs = defaultLeaseMs } = job.options;
  if (maxRunMs === undefined) return run();
  let giveUp: (error: Error) => void = () => undefined;
  const givenUp = new Promise<never>((_, reject) => (giveUp = reject));
  let timer = clock.after(maxRunMs, () => {
    // The shutdown has aborted the run and waits for it. A run whose lease was lost is given up like any other.
    if (lock.signal.aborted && !lock.isLost) return;
    const error = new RunTimeoutError(
      `The run of the job "${job.key}" took longer than its maxRunMs, ${maxRunMs} ms. End it when its signal aborts, or raise maxRunMs.`,
    );
    lock.abort(error);
    timer = clock.after(leaseMs, () => giveUp(error));
  });
  try {
    // In a context of its own, so that work that was given up finds its lock, which is released.
    return await Promise.race([locks.runWithLock(lock, run), givenUp]);
  } finally {
    timer.cancel();
  }
}
