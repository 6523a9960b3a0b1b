import { AsyncLocalStorage } from 'node:async_hooks';
import type { ClaimedRun } from './job-run.js';
import type { Job } from './job.js';

export interface RegisteredJob {
  readonly job: Job;
  /** Makes the claim for a call of the job; resolves with `undefined` if the call is skipped. */
  readonly claim: () => Promise<ClaimedRun | undefined>;
}

interface InvokedCall extends RegisteredJob {
  isUsed: boolean;
}

/**
 * Calls of jobs without their timers. Other decorators of the method may call it late or not at all, so the claim is made
 * only when the method itself is called.
 */
export class JobInvoker {
  readonly #pending = new AsyncLocalStorage<InvokedCall>();

  /** Calls the job as its timer would, through all decorators of its method. */
  async invoke(job: Job, claim: RegisteredJob['claim']): Promise<unknown> {
    return await this.#pending.run({ job, claim, isUsed: false }, () => job.invoke());
  }

  /** What `invoke` has begun and this call of the job belongs to, unless an earlier call has used it. */
  take(job: Job): RegisteredJob | undefined {
    const call = this.#pending.getStore();
    if (call?.job !== job || call.isUsed) return undefined;
    call.isUsed = true;
    return call;
  }
}
