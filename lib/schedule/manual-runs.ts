import type { AsyncResource } from 'node:async_hooks';
import { LockConfigError } from '../core/errors.js';
import type { ClaimedRun } from './job-run.js';
import type { DeferredTicks } from './deferred-ticks.js';
import type { JobInvoker } from './job-invoker.js';
import type { Job } from './job.js';
import type { ManualClaim, ManualClaimer } from './manual-claimer.js';
import type { CronRunRecord } from './run-record.js';

export interface ManualRun {
  /** The run as it began; or another run, if this call started none. */
  readonly record: CronRunRecord;
  /** Resolves when the run has ended and its locks are released. `undefined` if this call started none. */
  readonly ended: Promise<CronRunRecord> | undefined;
}

interface ManualRunsParts {
  readonly claimer: ManualClaimer;
  /** The asynchronous context of runs, in which no lock is held. */
  readonly context: AsyncResource;
  readonly jobInvoker: JobInvoker;
  readonly deferred: DeferredTicks;
}

/** Runs jobs at once, because `CronRuns.runNow()` was called. */
export class ManualRuns {
  readonly #parts: ManualRunsParts;

  constructor(parts: ManualRunsParts) {
    this.#parts = parts;
  }

  /**
   * Resolves when the run has begun, or with another run.
   *
   * @throws what `ManualClaimer.claim` throws; if other decorators do not call the method, what they throw, or a
   *   LockConfigError
   */
  start(job: Job): Promise<ManualRun> {
    const { claimer, context, deferred, jobInvoker } = this.#parts;
    return new Promise((resolve, reject) => {
      const fail: (reason: unknown) => void = reject;
      let isCalled = false;
      const claim = async () => {
        isCalled = true;
        // Not before, because a decorator may never call the method.
        const endCall = deferred.beginCall(job);
        // Decorators above the method must not see the error.
        const claimed = await claimer.claim(job).catch(reject);
        if (claimed && 'lock' in claimed) return this.#toRun(claimed, resolve, endCall);
        endCall();
        if (claimed) resolve({ record: claimed, ended: undefined });
        return undefined;
      };
      context
        .runInAsyncScope(() => jobInvoker.invoke(job, claim))
        .then(() => reject(notCalledError(job)))
        .catch((error: unknown) => {
          // Nothing else would report what the run throws. The record has only its message.
          if (isCalled) job.onError(error);
          fail(error);
        });
    });
  }

  #toRun(
    { tickMs, lock, turn }: ManualClaim,
    onStart: (run: ManualRun) => void,
    endCall: () => void,
  ): ClaimedRun {
    // Without its lock, the run keeps no tick from running, and its body may never end.
    lock.signal.addEventListener('abort', endCall);
    let resolveEnd: (record: CronRunRecord) => void = () => undefined;
    const ended = new Promise<CronRunRecord>((resolve) => (resolveEnd = resolve));
    let last: CronRunRecord | undefined;
    return {
      ...{ tickMs, lock, turn, isManual: true },
      onRecord: (record) => {
        last = record;
        onStart({ record, ended });
      },
      onEnd: async () => {
        await turn?.[Symbol.asyncDispose]();
        endCall();
        if (last) resolveEnd(last);
      },
    };
  }
}

const notCalledError = ({ key }: Job) =>
  new LockConfigError(
    `CronRuns.runNow('${key}'): expected the decorators above @SingletonCron to call the method before they return, but ` +
      `none did. If one of them calls it later, the job runs then. If one switches the job off, switch it on first.`,
    { key },
  );
