import type { LockRecord } from '../../core/backend.js';
import type { Locks } from '../../core/locks.js';
import { sleep } from '../../core/sleep.js';
import type { Job } from '../job.js';

/** A run renews its lease when a third of it is over, and tries again until another sixth is. */
const RENEWED_UNTIL_RATIO = 0.5;

/**
 * The run may have another lease than this replica has, as in a rolling deploy that changes `leaseMs`. Whatever it is, a run
 * that goes on has about two thirds of it left or more, and so of what it had left at an earlier look.
 */
const RECHECK_AT_RATIO = 0.55;
const NOT_RENEWED_RATIO = 0.6;

/** Between looks at one run. */
const MIN_PAUSE_MS = 100;

/** Publishes once for each run that its lease is no longer renewed: it names what nobody logs after a `kill -9`. */
export class DeadRunReporter {
  readonly #locks: Locks;
  readonly #activeChecks = new Set<string>();
  readonly #reported = new Map<string, bigint>();

  constructor(locks: Locks) {
    this.#locks = locks;
  }

  /** A tick of the job was skipped because a run is on. Returns at once, and reports later if that run is dead. */
  checkBlockingRun(job: Job): void {
    this.#checkOnce(job.key, async () => {
      const run = await this.#findOverdueRun(job);
      if (!run || this.#reported.get(job.key) === run.fencingToken) return;
      this.#reported.set(job.key, run.fencingToken);
      this.#report(job, run, { isBlocking: true });
    });
  }

  /**
   * Another replica runs a tick that has a lock of its own, so no later tick is skipped for it and asks again. Returns at
   * once, and looks at the run until it has ended.
   */
  checkRunUntilEnd(job: Job, storeKey: string): void {
    this.#checkOnce(storeKey, () => this.#checkUntilEnd(job, storeKey));
  }

  #checkOnce(name: string, check: () => Promise<void>): void {
    if (this.#activeChecks.has(name)) return;
    this.#activeChecks.add(name);
    // A store that does not answer is published by what asks it.
    void check()
      .catch(() => undefined)
      .finally(() => this.#activeChecks.delete(name));
  }

  async #checkUntilEnd(job: Job, storeKey: string): Promise<void> {
    const { clock, stopping } = this.#locks;
    let reported: bigint | undefined;
    // Most runs have ended by then, and cost one look.
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

  /** `null` if there is no run, `undefined` if it is renewed or another one has begun. Takes a part of a lease. */
  async #findOverdueRun(job: Job, storeKey?: string): Promise<LockRecord | null | undefined> {
    const { clock, stopping } = this.#locks;
    const first = await this.#locks.inspectRun(job.key, storeKey);
    if (!first) return null;
    const recheckAtMs = Math.min(this.#overdueMsOf(job), first.remainingMs * RECHECK_AT_RATIO);
    await sleep(clock, first.remainingMs - recheckAtMs, stopping);
    const run = stopping.aborted ? null : await this.#locks.inspectRun(job.key, storeKey);
    if (!run) return null;
    const isOverdue = run.remainingMs <= first.remainingMs * NOT_RENEWED_RATIO;
    return isOverdue && run.fencingToken === first.fencingToken ? run : undefined;
  }

  #overdueMsOf({ options }: Job): number {
    return (options.leaseMs ?? this.#locks.defaultLeaseMs) * RENEWED_UNTIL_RATIO;
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
