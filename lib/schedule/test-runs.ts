import type { Clock } from '../core/clock.js';
import { LockHandle } from '../core/leases/lock-handle.js';
import type { ClaimedRun } from './claimed-run.js';
import type { JobInvoker } from './job-invoker.js';
import type { Job } from './job.js';
import type { TickClaimer } from './tick-claimer.js';
import type { TickRuns } from './tick-runs.js';

interface TestRunsParts {
  readonly clock: Clock;
  readonly claimer: TickClaimer;
  readonly jobInvoker: JobInvoker;
  readonly tickRuns: TickRuns;
}

/** Runs jobs for `LockControl.fire()` and under `LockTestingModule`, whatever their schedule. */
export class TestRuns {
  readonly #parts: TestRunsParts;
  /** Ticks that a test has run with `fire(key, { tick })`. */
  readonly #namedTicks = new Set<string>();

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
    const claim = async () => {
      const claimed = await this.claim(job, tickMs);
      if (claimed && tickMs !== undefined) this.#namedTicks.add(tickName);
      return claimed;
    };
    return await jobInvoker.invoke(job, claim);
  }

  /** Claims a run without a tick: it is refused only while the job is paused or another run is in progress. */
  async claim(job: Job, givenTickMs?: number): Promise<ClaimedRun | undefined> {
    const { clock, claimer, tickRuns } = this.#parts;
    const nowMs = clock.wallMs();
    const tickMs = givenTickMs ?? job.plan?.latest(nowMs) ?? nowMs;
    const lock = await claimer.claimWithoutTick(job);
    if (lock instanceof LockHandle) return { tickMs, lock };
    tickRuns.emitSkipped(job, tickMs, lock);
    return undefined;
  }
}
