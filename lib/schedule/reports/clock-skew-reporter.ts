import { Logger } from '@nestjs/common';
import type { Locks } from '../../core/locks.js';
import type { Job } from '../job.js';
import type { Tick } from '../plan/tick-calculator.js';
import { maxEarlyMsOf } from '../claim-params.js';

/** Most refused ticks were run by another replica, so refusals of a job are examined at most this often. */
const CHECK_INTERVAL_MS = 10 * 60_000;

const MINUTE_MS = 60_000;
/** Clocks that differ by less cause no warning. */
const CLOCK_SKEW_WARNING_MS = MINUTE_MS;

/** Warns of clock differences that keep jobs from running. It does not affect any run. */
export class ClockSkewReporter {
  readonly #locks: Locks;
  readonly #logger = new Logger('DistributedLockModule');
  readonly #checkedAtMs = new WeakMap<Job, number>();
  readonly #warnedJobs = new WeakSet<Job>();
  #hasWarnedAhead = false;
  #hasWarnedBehind = false;

  constructor(locks: Locks) {
    this.#locks = locks;
  }

  /**
   * Call it when a tick of the job was refused as claimed. Returns at once, and later warns once if the newest claimed
   * tick is later than the store's clock, so that no tick of the job can be claimed.
   */
  reportClaimed(job: Job, tick: Tick): void {
    const nowMs = this.#locks.clock.monotonicMs();
    if (nowMs - (this.#checkedAtMs.get(job) ?? -Infinity) < CHECK_INTERVAL_MS) return;
    this.#checkedAtMs.set(job, nowMs);
    void this.#check(job, tick);
  }

  async #check(job: Job, tick: Tick): Promise<void> {
    const { claimed, nowMs = 0 } = (await this.#locks.jobs.tryReadTicks(job.key)) ?? {};
    if (!claimed) return;
    const isInFuture = claimed.tickMs - nowMs >= maxEarlyMsOf(job, tick) + CLOCK_SKEW_WARNING_MS;
    if (!isInFuture) this.#warnedJobs.delete(job);
    else if (!this.#warnedJobs.has(job)) {
      this.#warnedJobs.add(job);
      this.#logger.warn(futureClaimWarning(job));
    }
  }

  /** Call it when a tick was refused as stale. `aheadMs`: how far the tick is ahead of the store's clock, so negative. */
  reportStale({ key }: Job, { tickMs }: Tick, aheadMs: number): void {
    const behindMs = -aheadMs - (this.#locks.clock.wallMs() - tickMs);
    if (this.#hasWarnedBehind || behindMs <= CLOCK_SKEW_WARNING_MS) return;
    this.#hasWarnedBehind = true;
    this.#logger.warn(
      `The clock of this process is ${Math.round(behindMs / MINUTE_MS)} minutes behind the store's: a tick of the job "${key}" ` +
        `was skipped as stale. Correct the clock of this process, and check NTP. Further ticks like this one are not logged.`,
    );
  }

  /** Call it when a tick must wait for the store's clock. The timer of an interval may also fire early on its own. */
  reportEarly({ key, plan }: Job, aheadMs: number): void {
    if (this.#hasWarnedAhead || aheadMs <= (plan?.toleranceMs.early ?? 0) + CLOCK_SKEW_WARNING_MS) return;
    this.#hasWarnedAhead = true;
    const minutes = Math.round(aheadMs / MINUTE_MS);
    this.#logger.warn(
      `The clock of this process is ${minutes} minutes ahead of the store's: a tick of the job "${key}" waits until the store's ` +
        `clock has reached it. Correct the clock of this process, and check NTP. Further ticks like this one are not logged.`,
    );
  }
}

const futureClaimWarning = ({ key }: Job) =>
  `Ticks of the job "${key}" are skipped: its newest claimed tick is later than the store's clock, which happens when clocks ` +
  `ran ahead and were set back. Ticks run again when that clock has caught up. If that takes too long, give the job another key, or see ` +
  `"Jobs and leaders" in docs/guarantees.md.`;
