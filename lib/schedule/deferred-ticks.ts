import type { Job } from './job.js';
import type { Tick } from './plan/tick-calculator.js';

/** A tick that was refused because the lock of the job was taken. */
export interface DeferredTick {
  readonly tick: Tick;
  /** For a missed tick: the newest tick that was claimed before it. */
  readonly claimed?: Tick | undefined;
}

interface DeferredTicksParts {
  /** Claims the tick for the last time. */
  readonly claimAgain: (job: Job, deferred: DeferredTick) => void;
  readonly onSkipped: (job: Job, tick: Tick) => void;
}

/**
 * The planned ticks that `CronRuns.runNow()` has kept from running in this process. When its run has ended, the newest of
 * them is claimed again, so that a manual run does not replace a planned one.
 */
export class DeferredTicks {
  readonly #parts: DeferredTicksParts;
  /** Of each job, a promise that resolves when all calls of `runNow()` have ended. */
  readonly #calls = new Map<Job, Promise<unknown>>();
  readonly #deferred = new Map<Job, DeferredTick>();

  constructor(parts: DeferredTicksParts) {
    this.#parts = parts;
  }

  /** Ticks that are refused until the returned function is called may be deferred. */
  beginCall(job: Job): () => void {
    let endCall: () => void = () => undefined;
    const call = new Promise<void>((resolve) => (endCall = resolve));
    const calls = Promise.all([this.#calls.get(job), call]).then(() => {
      if (this.#calls.get(job) === calls) this.#calls.delete(job);
    });
    this.#calls.set(job, calls);
    return endCall;
  }

  /** Read it before the claim of a tick too: the call may have ended when its refusal arrives. */
  callsOf(job: Job): Promise<unknown> | undefined {
    return this.#calls.get(job);
  }

  defer(job: Job, deferred: DeferredTick, calls: Promise<unknown>): void {
    const other = this.#deferred.get(job);
    if (other) {
      // A refusal may arrive late, so the tick that is deferred last is not always the newest.
      const [older, newest] =
        other.tick.tickMs < deferred.tick.tickMs ? [other, deferred] : [deferred, other];
      this.#deferred.set(job, newest);
      this.#parts.onSkipped(job, older.tick);
      return;
    }
    this.#deferred.set(job, deferred);
    void calls.then(() => {
      const newest = this.#deferred.get(job);
      this.#deferred.delete(job);
      if (newest) this.#parts.claimAgain(job, newest);
    });
  }
}
