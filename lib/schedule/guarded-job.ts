import type { Job } from './job.js';
import { type JobRef, PassingRef, keptRef } from './job-ref.js';
import type { Participation } from './participation.js';

/** A job that was made at run time. It is not kept: once nobody has its `onTick`, nothing fires it any more. */
export class GuardedJob {
  readonly key: string;
  readonly #ref: JobRef & { clear?(): void };
  #end: (() => void) | undefined;

  constructor(job: Job, { isKept }: { isKept: boolean }) {
    this.key = job.key;
    this.#ref = isKept ? keptRef(job) : new PassingRef(job);
  }

  get job(): Job | undefined {
    return this.#ref.deref();
  }

  begin(participation: Participation): void {
    const { job } = this;
    if (job) this.#end ??= participation.begin(job, this.#ref);
  }

  end(): void {
    this.#end?.();
    this.#end = undefined;
    this.#ref.clear?.();
  }
}
