import type { JobRun } from './job-run.js';

/** A run that may begin. */
export interface ClaimedRun extends Omit<JobRun, 'locks' | 'job'> {
  /** Called when the run has ended and its lock is released. */
  readonly onEnd?: () => Promise<void>;
}
