import { Logger } from '@nestjs/common';
import type { Job } from '../job.js';

/** Logs once that a job is paused, so that somebody sees a pause that was never ended. */
export class PauseReporter {
  readonly #logger = new Logger('DistributedLockModule');
  readonly #pausedJobs = new WeakSet<Job>();

  /** Call it with the result of each claim of a tick. */
  report(job: Job, isPaused: boolean): void {
    if (!isPaused) this.#pausedJobs.delete(job);
    else if (!this.#pausedJobs.has(job)) {
      this.#pausedJobs.add(job);
      this.#logger.log(
        `The job "${job.key}" is paused: its ticks are skipped until CronRuns.resume('${job.key}') is called.`,
      );
    }
  }
}
