import type { TickSkipReason } from '../core/events.js';
import { LockHandle } from '../core/leases/lock-handle.js';
import type { Locks } from '../core/locks.js';
import type { ClaimedRun } from './job-run.js';
import type { JobInvoker } from './job-invoker.js';
import type { Job } from './job.js';
import { mayOverlap, ownStoreKey } from './tick-keys.js';
import type { TickRuns } from './tick-runs.js';

interface TestRunsParts {
  readonly locks: Locks;
  readonly jobInvoker: JobInvoker;
  readonly tickRuns: TickRuns;
}

/** Runs jobs for `LockControl.fire()` and under `LockTestingModule`, whatever their schedule. */
export class TestRuns {
  readonly #parts: TestRunsParts;
  /** Ticks that a test has run with `fire(key, { tick })`. */
  readonly #namedTicks = new Set<string>();
  /** How many runs have begun: each that may overlap has a store key of its own. */
  #runCount = 0;

  constructor(parts: TestRunsParts) {
    this.#parts = parts;
  }

  /** Returns what the job returns; `undefined` if it was skipped. */
  async run(job: Job, tickMs?: number): Promise<unknown> {
    const { jobInvoker, tickRuns } = this.#parts;
    const tickName = `${job.key}@${tickMs}`;
    if (tickMs !== undefined && this.#namedTicks.has(tickName)) {
      tickRuns.emitSkipped(job, tickMs, 'taken');
      return undefined;
    }
    // Before the claim, because another call for the tick may come meanwhile.
    if (tickMs !== undefined) this.#namedTicks.add(tickName);
    let claimed: ClaimedRun | undefined;
    try {
      return await jobInvoker.invoke(job, async () => (claimed = await this.claim(job, tickMs)));
    } finally {
      if (!claimed) this.#namedTicks.delete(tickName);
    }
  }

  /** Claims a run without a tick: it is refused only while the job is paused or another run is in progress. */
  async claim(job: Job, givenTickMs?: number): Promise<ClaimedRun | undefined> {
    const { locks, tickRuns } = this.#parts;
    const nowMs = locks.clock.wallMs();
    const tickMs = givenTickMs ?? job.plan?.latest(nowMs) ?? nowMs;
    const lock = await this.#claimLock(job);
    if (lock instanceof LockHandle) return { tickMs, lock };
    tickRuns.emitSkipped(job, tickMs, lock);
    return undefined;
  }

  async #claimLock(job: Job): Promise<LockHandle | TickSkipReason> {
    const { jobs, stopping } = this.#parts.locks;
    const state = await jobs.tryReadTicks(job.key);
    if (stopping.aborted) return 'shutdown';
    if (!state) return 'unavailable';
    if (state.isPaused) return 'paused';
    this.#runCount += 1;
    const storeKey = mayOverlap(job) ? ownStoreKey(job.key, this.#runCount, this.#parts.locks) : undefined;
    const lock = await jobs.claimTick(job.key, { leaseMs: job.options.leaseMs, storeKey });
    if (lock instanceof LockHandle) return lock;
    return lock.kind === 'unknown' ? 'unavailable' : 'overlap';
  }
}
