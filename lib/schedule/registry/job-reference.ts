import type { Job } from '../job.js';

/** Where a job can be found. */
export interface JobReference {
  deref(): Job | undefined;
}

export const strongReference = (job: Job): JobReference => ({ deref: () => job });

/** Keeps a job until the end of this turn of the event loop only; then others must keep it. */
export class TemporaryJobReference implements JobReference {
  #job: Job | undefined;
  #weak: WeakRef<Job> | undefined;

  constructor(job: Job) {
    this.#job = job;
    // A weak reference would keep the job for this turn, even if it is let go in it.
    void Promise.resolve().then(() => {
      if (this.#job) this.#weak = new WeakRef(this.#job);
      this.#job = undefined;
    });
  }

  deref(): Job | undefined {
    return this.#job ?? this.#weak?.deref();
  }

  clear(): void {
    this.#job = undefined;
    this.#weak = undefined;
  }
}
