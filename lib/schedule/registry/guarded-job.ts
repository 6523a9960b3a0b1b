import type { Job } from '../job.js';

/** A strong or weak reference to a job. */
export interface JobReference {
  deref(): Job | undefined;
}

export const strongReference = (job: Job): JobReference => ({ deref: () => job });

/** Keeps a job alive until the end of this turn of the event loop only. After that, other references must keep it. */
class TemporaryJobReference implements JobReference {
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

/** A job that was created at run time. It is held weakly: without references to its `onTick`, nothing can fire it any more. */
export class GuardedJob {
  readonly key: string;
  readonly #reference: JobReference & { clear?(): void };
  #deactivate: (() => void) | undefined;

  constructor(job: Job, { keepsJob }: { keepsJob: boolean }) {
    this.key = job.key;
    this.#reference = keepsJob ? strongReference(job) : new TemporaryJobReference(job);
  }

  get job(): Job | undefined {
    return this.#reference.deref();
  }

  activate(activate: (job: Job, reference: JobReference) => () => void): void {
    const { job } = this;
    if (job) this.#deactivate ??= activate(job, this.#reference);
  }

  deactivate(): void {
    this.#deactivate?.();
    this.#deactivate = undefined;
    this.#reference.clear?.();
  }
}
