import type { LockRecord } from '../../core/lock-record.js';
import type { Locks } from '../../core/locks.js';
import { sleep } from '../../core/clock.js';
import type { Job } from '../job.js';

/** A run renews its lease after a third of it, and retries during the next sixth. So a live run has half of its lease left. */
const RENEWED_UNTIL_RATIO = 0.5;

/**
 * The run may have a different lease than the job has in this replica, as in a rolling deployment that changes `leaseMs`.
 * Whatever the lease is, a live run has about two thirds of it left or more. So it also has at least about two thirds of what
 * remained at an earlier check, unless it had called `extend()`: its renewals then change nothing until the end is near.
 */
const RECHECK_AT_RATIO = 0.55;
const NOT_RENEWED_RATIO = 0.6;

/** The shortest pause between two checks of one run. */
const MIN_PAUSE_MS = 100;

/** Emits `run-overdue` once for each run that is no longer renewed. After a `kill -9`, nothing else would be logged. */
export class DeadRunReporter {
  readonly #locks: Locks;
  readonly #activeChecks = new Set<string>();
  readonly #reported = new Map<string, bigint>();

  constructor(locks: Locks) {
    this.#locks = locks;
  }

  /** Call it when a tick was skipped because a run is in progress. Returns at once, and reports later if that run is dead. */
  checkBlockingRun(job: Job): void {
    this.#checkOnce(job.key, async () => {
      const run = await this.#findOverdueRun(job);
      if (!run || this.#reported.get(job.key) === run.fencingToken) return;
      this.#reported.set(job.key, run.fencingToken);
      this.#report(job, run, { isBlocking: true });
    });
  }

  /**
   * Call it when another replica runs a tick with its own lock. No later tick is skipped because of that run, so nothing else
   * would check it. Returns at once, and checks the run until it has ended.
   */
  checkRunUntilEnd(job: Job, storeKey: string): void {
    this.#checkOnce(storeKey, () => this.#checkUntilEnd(job, storeKey));
  }

  #checkOnce(name: string, check: () => Promise<void>): void {
    if (this.#activeChecks.has(name)) return;
    this.#activeChecks.add(name);
    // The failed request itself has emitted `unavailable`.
    void check()
      .catch(() => undefined)
      .finally(() => this.#activeChecks.delete(name));
  }

  async #checkUntilEnd(job: Job, storeKey: string): Promise<void> {
    const { clock, stopping } = this.#locks;
    let reported: bigint | undefined;
    // Most runs have ended by then, so they cost a single check.
    await sleep(clock, this.#overdueMsOf(job), stopping);
    for (;;) {
      const run = await this.#findOverdueRun(job, storeKey);
      if (run === null || stopping.aborted) return;
      if (run && run.fencingToken !== reported) {
        reported = run.fencingToken;
        this.#report(job, run, { isBlocking: false });
      }
      await sleep(clock, Math.max(run?.remainingMs ?? 0, MIN_PAUSE_MS), stopping);
    }
  }

  /** Resolves, after a part of a lease, with `null` if there is no run, and `undefined` if it was renewed or a new one began. */
  async #findOverdueRun(job: Job, storeKey?: string): Promise<LockRecord | null | undefined> {
    let first = await this.#locks.jobs.inspectRun(job.key, storeKey);
    while (first) {
      const recheckAtMs = Math.min(this.#overdueMsOf(job), first.remainingMs * RECHECK_AT_RATIO);
      const run = await this.#inspectIn(first.remainingMs - recheckAtMs, job, storeKey);
      if (!run) return null;
      const isRenewed = run.remainingMs > first.remainingMs * NOT_RENEWED_RATIO;
      if (isRenewed || run.fencingToken !== first.fencingToken) return undefined;
      if (first.remainingMs <= this.#leaseMsOf(job)) return run;
      // It may have called `extend()`, so one check more shows whether it is renewed with its own lease.
      first = run;
    }
    return null;
  }

  async #inspectIn(delayMs: number, job: Job, storeKey?: string): Promise<LockRecord | null> {
    const { clock, stopping } = this.#locks;
    await sleep(clock, delayMs, stopping);
    return stopping.aborted ? null : this.#locks.jobs.inspectRun(job.key, storeKey);
  }

  #leaseMsOf({ options }: Job): number {
    return options.leaseMs ?? this.#locks.defaultLeaseMs;
  }

  #overdueMsOf(job: Job): number {
    return this.#leaseMsOf(job) * RENEWED_UNTIL_RATIO;
  }

  #report(
    { key: job }: Job,
    { instance, sinceMs, fencingToken, remainingMs }: LockRecord,
    { isBlocking }: { readonly isBlocking: boolean },
  ): void {
    const since = new Date(sinceMs);
    this.#locks.events.emit('run-overdue', { job, instance, since, fencingToken, remainingMs, isBlocking });
  }
}
