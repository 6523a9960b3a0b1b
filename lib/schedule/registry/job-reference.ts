import type { Job } from '../job.js';

/** A strong or weak reference to a job. */
export interface JobReference {
  deref(): Job | undefined;
}

export const strongReference = (job: Job): JobReference => ({ deref: () => job });

/** Keeps a job alive until the end of this turn of the event loop only. After that, other references must keep it. */
export class TemporaryJobReference implements JobReference {
  #job: Job | undefined;
  #weak: WeakRef<Job> | undefined;

  constructor(job: Job) {
    this.#job = job;
    // A WeakRef keeps its target for the whole turn in which it is created, even if the job is unregistered in that turn.
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
