import type { LockHandle } from '../core/leases/lock-handle.js';
import type { JobRun } from './job-run.js';

/** A run that may begin. */
export interface ClaimedRun extends Omit<JobRun, 'locks' | 'job'> {
  /** Another lock that is held until the end of the run. */
  readonly turn?: LockHandle | undefined;
  /** Called when the run has ended and its lock is released. */
  readonly onEnd?: () => Promise<void>;
}
