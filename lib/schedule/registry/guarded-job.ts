import type { Job } from '../job.js';
import type { JobActivator } from './job-activator.js';
import { type JobReference, TemporaryJobReference, strongReference } from './job-reference.js';

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

  activate(jobActivator: JobActivator): void {
    const { job } = this;
    if (job) this.#deactivate ??= jobActivator.activate(job, this.#reference);
  }

  deactivate(): void {
    this.#deactivate?.();
    this.#deactivate = undefined;
    this.#reference.clear?.();
  }
}
