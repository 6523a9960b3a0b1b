import { Logger } from '@nestjs/common';
import { systemClock } from '../../core/clock.js';
import { type Job, retriesDeadRuns, runsMissedTicks } from '../job.js';
import type { MissedTickRunner } from '../recovery/missed-tick-runner.js';
import { type JobReference, strongReference } from './guarded-job.js';

/** The elections in which this process takes part. */
export interface JobElections {
  /** Joins for a job. The returned function leaves the election, unless something else has joined it. */
  joinForJob(name: string, handler: ElectedHandler): () => void;
  /** Starts the candidate of an election that was joined while this process fired none of its jobs. */
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

/** The scheduler has no event for a job that is started, stopped or deleted, so its state is checked this often. */
const CHECK_INTERVAL_MS = 1_000;

/** While the scheduler of this process fires a job, joins the job's election and recovers its missed ticks and dead runs. */
export class JobActivator {
  readonly #parts: JobActivatorParts;
  /** The jobs of decorated methods with `leader`, `onMissed: 'once'` or `onDeadRun: 'retry'`. */
  readonly #watchedJobs = new Set<Job>();
  /** Functions that end the activation of a job. The map is weak, so that jobs created at run time can be collected. */
  readonly #deactivations = new WeakMap<Job, () => void>();
  /** The jobs that run nowhere because this process leads their election without firing them. */
  readonly #warned = new WeakSet<Job>();
  readonly #logger = new Logger('DistributedLockModule');
  #isStarted = false;

  constructor(parts: JobActivatorParts) {
    this.#parts = parts;
  }

  /** From {@link start} on, activates the job whenever the scheduler fires it. */
  watch(job: Job): void {
    const { leader } = job.options;
    if (leader === undefined && !runsMissedTicks(job) && !retriesDeadRuns(job)) return;
    this.#watchedJobs.add(job);
    if (leader !== undefined) this.#parts.elections.deferUntilFiring(leader, () => job.isFiring());
  }

  /** Recovers what happened while this process was down, and from now on checks the scheduler every second. */
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
    // The system clock, because the scheduler uses it too.
    const timer = systemClock.after(CHECK_INTERVAL_MS, () => {
      stopping.removeEventListener('abort', cancel);
      this.#checkJobs();
    });
    const cancel = () => timer.cancel();
    stopping.addEventListener('abort', cancel, { once: true });
  }

  /** Joins the job's election, and starts its recovery if {@link start} was called. The returned function ends the activation. */
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

  /** Joins the election. Each new term starts a recovery, because ticks may have passed while no process led. */
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

  /** Warns once, until the scheduler fires the job again. */
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
