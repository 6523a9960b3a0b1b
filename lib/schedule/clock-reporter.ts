import { Logger } from '@nestjs/common';
import { Lease } from '../core/lease.js';
import type { Locks } from '../core/locks.js';
import type { Job } from './job.js';
import type { Tick } from './tick-tracker.js';
import { FAR_OFF_MS, laterClaimProbe } from './tick-wish.js';

/** Most refused ticks were run by another replica, so a refusal is looked at no more often. */
const PAUSE_MS = 10 * 60_000;

const MINUTE_MS = 60_000;

/** Warns of clocks that keep jobs from running. It decides nothing. */
export class ClockReporter {
  readonly #locks: Locks;
  readonly #logger = new Logger('DistributedLockModule');
  readonly #lookedAtMs = new WeakMap<Job, number>();
  readonly #warnedOf = new WeakSet<Job>();
  #isAhead = false;

  constructor(locks: Locks) {
    this.#locks = locks;
  }

  /**
   * A tick of the job was refused as claimed. Returns at once, and warns once of a job whose newest claimed tick is later
   * than the store's clock, so that no tick of it can be claimed.
   */
  claimed(job: Job, tick: Tick, aheadMs: number): void {
    const nowMs = this.#locks.clock.monotonicMs();
    if (nowMs - (this.#lookedAtMs.get(job) ?? -Infinity) < PAUSE_MS) return;
    this.#lookedAtMs.set(job, nowMs);
    // A store that does not answer is published by what asks it.
    void this.#look(job, tick, tick.tickMs - aheadMs).catch(() => undefined);
  }

  async #look(job: Job, tick: Tick, storeMs: number): Promise<void> {
    const { maxEarlyMs, wish } = laterClaimProbe(job, tick, storeMs);
    const answer = await this.#locks.claimTick(job.key, wish);
    if (answer instanceof Lease || answer.kind !== 'refused') return;
    const isLater = answer.reason === 'claimed' && answer.aheadMs > maxEarlyMs;
    if (!isLater) this.#warnedOf.delete(job);
    else if (!this.#warnedOf.has(job)) {
      this.#warnedOf.add(job);
      this.#logger.warn(laterClaim(job));
    }
  }

  /** A tick of the job must wait until the store's clock has reached it. An interval may fire early by itself. */
  early({ key, plan }: Job, aheadMs: number): void {
    if (this.#isAhead || aheadMs <= (plan?.slackMs.early ?? 0) + FAR_OFF_MS) return;
    this.#isAhead = true;
    const minutes = Math.round(aheadMs / MINUTE_MS);
    this.#logger.warn(
      `The clock of this process is ${minutes} minutes ahead of the store's: a tick of the job "${key}" waits until the store's ` +
        `clock has reached it. Set the clock, and look at NTP. Further ticks like this one are not logged.`,
    );
  }
}

const laterClaim = ({ key }: Job) =>
  `Ticks of the job "${key}" are skipped: its newest claimed tick is later than the store's clock, as when clocks ran ahead ` +
  `and were set back. They run again when that clock has caught up. If that takes too long, give the job another key, or see ` +
  `"A clock that ran ahead" in docs/guarantees.md.`;
