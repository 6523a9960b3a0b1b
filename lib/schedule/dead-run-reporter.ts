import type { Locks } from '../core/locks.js';
import { sleep } from '../core/sleep.js';
import type { Job } from './job.js';

/** A run renews its lease when a third of it is over, and tries again until another sixth is. */
const RENEWED_UNTIL_RATIO = 0.5;

/**
 * The run may have another lease than this replica has, as in a rolling deploy that changes `leaseMs`. Whatever it is, a run
 * that goes on has about two thirds of it left or more, and so of what it had left at an earlier look.
 */
const LOOKS_AGAIN_AT_RATIO = 0.55;
const NOT_RENEWED_RATIO = 0.6;

/** Publishes once for each run that its lease is no longer renewed, so that skipped ticks have a reason. */
export class DeadRunReporter {
  readonly #locks: Locks;
  readonly #looking = new Set<string>();
  readonly #reported = new Map<string, bigint>();

  constructor(locks: Locks) {
    this.#locks = locks;
  }

  /** A tick of the job was skipped because a run is on. Returns at once, and reports later if that run is dead. */
  skipped(job: Job): void {
    if (this.#looking.has(job.key)) return;
    this.#looking.add(job.key);
    // A store that does not answer is published by what asks it.
    void this.#look(job)
      .catch(() => undefined)
      .finally(() => this.#looking.delete(job.key));
  }

  async #look({ key, options }: Job): Promise<void> {
    const { clock, stopping, events, defaultLeaseMs } = this.#locks;
    const first = await this.#locks.runOf(key);
    if (!first) return;
    const overdueMs = (options.leaseMs ?? defaultLeaseMs) * RENEWED_UNTIL_RATIO;
    const lookAgainAtMs = Math.min(overdueMs, first.remainingMs * LOOKS_AGAIN_AT_RATIO);
    await sleep(clock, first.remainingMs - lookAgainAtMs, stopping);
    const run = stopping.aborted ? null : await this.#locks.runOf(key);
    if (run?.fencingToken !== first.fencingToken) return;
    if (run.remainingMs > first.remainingMs * NOT_RENEWED_RATIO) return;
    if (this.#reported.get(key) === run.fencingToken) return;
    this.#reported.set(key, run.fencingToken);
    const { instance, sinceMs, fencingToken, remainingMs } = run;
    events.emit('run-overdue', { job: key, instance, since: new Date(sinceMs), fencingToken, remainingMs });
  }
}
