import { Logger } from '@nestjs/common';
import { systemClock } from '../../core/clock.js';
import type { MissedTickRunner } from '../recovery/missed-tick-runner.js';
import { type JobReference, strongReference } from './job-reference.js';
import { type Job, runsMissedTicks, retriesDeadRuns } from '../job.js';

/** The elections in which this process takes part. */
export interface JobElections {
  /** Joins, and leaves if nobody else has joined when what this returns is called. */
  joinForJob(name: string, handler: ElectedHandler): () => void;
  /** Somebody may have joined while no job of it was fired here. */
  startDeferred(name: string): void;
  deferUntilFiring(name: string, isFiring: () => boolean): void;
  currentTerm(name: string): object | undefined;
  confirmTerm(name: string): Promise<object | undefined>;
}

interface ElectedHandler {
  readonly location: string;
  run(): void;
  isFiring(): boolean;
}

interface JobActivatorParts {
  readonly elections: JobElections;
  readonly missedTickRunner: MissedTickRunner;
  readonly stopping: AbortSignal;
}

/** The scheduler tells nobody when a job is started, stopped or deleted, so it is looked at this often. */
const CHECK_INTERVAL_MS = 1_000;

/** Takes part in jobs while the scheduler of this process fires them: in their elections and in what nobody has fired. */
export class JobActivator {
  readonly #parts: JobActivatorParts;
  /** Those of decorated methods for which it matters. */
  readonly #watchedJobs = new Set<Job>();
  /** How to leave again. Jobs that are made at run time are not kept by this. */
  readonly #deactivations = new WeakMap<Job, () => void>();
  /** Those that run nowhere, as this process leads without firing them. */
  readonly #warned = new WeakSet<Job>();
  readonly #logger = new Logger('DistributedLockModule');
  #isStarted = false;

  constructor(parts: JobActivatorParts) {
    this.#parts = parts;
  }

  /** Takes part from {@link start} on, whenever the job is fired. */
  watch(job: Job): void {
    const { leader } = job.options;
    if (leader === undefined && !runsMissedTicks(job) && !retriesDeadRuns(job)) return;
    this.#watchedJobs.add(job);
    if (leader !== undefined) this.#parts.elections.deferUntilFiring(leader, () => job.isFiring());
  }

  /** Looks for what happened while this process was not there; from now on it looks at the scheduler again and again. */
  start(guardedJobs: Iterable<Job>): void {
    this.#isStarted = true;
    for (const job of guardedJobs) this.#parts.missedTickRunner.recover(job);
    this.#checkJobs();
  }

  #checkJobs(): void {
    const { stopping } = this.#parts;
    if (this.#watchedJobs.size === 0 || stopping.aborted) return;
    for (const job of this.#watchedJobs) {
      if (job.isFiring()) {
        this.activate(job);
        if (job.options.leader !== undefined) this.#parts.elections.startDeferred(job.options.leader);
        this.#warned.delete(job);
      } else {
        this.#deactivations.get(job)?.();
        this.#warnIfLeader(job);
      }
    }
    // By real time, as the scheduler goes by it.
    const timer = systemClock.after(CHECK_INTERVAL_MS, () => {
      stopping.removeEventListener('abort', cancel);
      this.#checkJobs();
    });
    const cancel = () => timer.cancel();
    stopping.addEventListener('abort', cancel, { once: true });
  }

  /** Catches up if that is due already. Returns how to end it. */
  activate(job: Job, reference = strongReference(job)): () => void {
    const existing = this.#deactivations.get(job);
    if (existing) return existing;
    const leave = this.#join(job, reference);
    const deactivate = () => {
      const currentJob = reference.deref();
      if (currentJob) this.#deactivations.delete(currentJob);
      leave?.();
    };
    this.#deactivations.set(job, deactivate);
    if (this.#isStarted) this.#parts.missedTickRunner.recover(job);
    return deactivate;
  }

  /** Ticks may have passed while nobody led. */
  #join({ key: location, options: { leader } }: Job, reference: JobReference): (() => void) | undefined {
    const { elections, missedTickRunner, stopping } = this.#parts;
    if (leader === undefined || stopping.aborted) return undefined;
    const run = () => {
      const job = reference.deref();
      if (job && this.#isStarted) missedTickRunner.recover(job);
    };
    const isFiring = () => reference.deref()?.isFiring() ?? false;
    return elections.joinForJob(leader, { location, run, isFiring });
  }

  /** Once, until the job is fired again. */
  #warnIfLeader(job: Job): void {
    const { leader } = job.options;
    if (leader === undefined || this.#warned.has(job) || !this.#parts.elections.currentTerm(leader)) return;
    this.#warned.add(job);
    this.#logger.warn(
      `This process leads "${leader}", but its scheduler does not fire the job '${job.key}', which runs on the leader ` +
        `only. So the job runs nowhere now. Join this election only in processes whose scheduler fires the job.`,
    );
  }
}
