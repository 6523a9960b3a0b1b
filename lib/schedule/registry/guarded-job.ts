import type { Job } from '../job.js';
import { type JobReference, TemporaryJobReference, strongReference } from './job-reference.js';
import type { JobActivator } from './job-activator.js';

/** A job that was made at run time. It is not kept: once nobody has its `onTick`, nothing fires it any more. */
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
