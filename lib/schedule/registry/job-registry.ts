import { Logger } from '@nestjs/common';
import { systemClock } from '../../core/clock.js';
import type { Elections } from '../../election/elections.js';
import { type Job, retriesDeadRuns, runsMissedTicks } from '../job.js';
import type { Recovery } from '../recovery/recovery.js';

interface JobRegistryParts {
  readonly elections: Elections;
  readonly recovery: Recovery;
  readonly stopping: AbortSignal;
  /** Whether jobs that are created at run time are kept even if nothing else references them. */
  readonly keepsJobs: boolean;
}

interface JobReference {
  deref(): Job | undefined;
}

/** A job that was created at run time. It is held weakly: without references to its `onTick`, nothing can fire it any more. */
interface GuardedJob {
  readonly key: string;
  readonly reference: JobReference;
  deactivate(): void;
}

/** The scheduler has no event for a job that is started, stopped or deleted, so its state is checked this often. */
const CHECK_INTERVAL_MS = 1_000;

/**
 * The jobs of this process. While its scheduler fires a job, the process is in the job's election and recovers its missed ticks
 * and dead runs.
 */
export class JobRegistry {
  readonly #parts: JobRegistryParts;
  readonly #decoratedJobs = new Map<string, Job>();
  readonly #guardedJobs = new Map<string, GuardedJob>();
  /** The held value must not reference the job, not even through a closure: the job would never be collected. */
  readonly #finalizationRegistry = new FinalizationRegistry<GuardedJob>((guarded) => this.#remove(guarded));
  /** The jobs of decorated methods with `leader`, `onMissed: 'once'` or `onDeadRun: 'retry'`. */
  readonly #watchedJobs = new Set<Job>();
  /** Functions that end the activation of a watched job. */
  readonly #deactivations = new Map<Job, () => void>();
  /** The jobs that run nowhere because this process leads their election without firing them. */
  readonly #warned = new WeakSet<Job>();
  readonly #logger = new Logger('DistributedLockModule');
  #isStarted = false;

  constructor(parts: JobRegistryParts) {
    this.#parts = parts;
  }

  /** Adds the job of a decorated method. From {@link start} on, it is activated whenever the scheduler fires it. */
  add(job: Job): void {
    const { leader } = job.options;
    this.#decoratedJobs.set(job.key, job);
    if (leader === undefined && !runsMissedTicks(job) && !retriesDeadRuns(job)) return;
    this.#watchedJobs.add(job);
    if (leader !== undefined) this.#parts.elections.deferUntilFiring(leader, () => job.isFiring());
  }

  /**
   * Adds a job that was created at run time, in place of an earlier one with its key. The returned function removes it.
   *
   * @throws LockConfigError if it cannot join its election. Then the earlier job remains.
   */
  addGuarded(job: Job): () => void {
    const { key } = job;
    const reference: JobReference = this.#parts.keepsJobs ? { deref: () => job } : new WeakRef(job);
    const guarded: GuardedJob = { key, reference, deactivate: this.#join(job, reference) };
    const previous = this.#guardedJobs.get(key);
    this.#guardedJobs.set(key, guarded);
    this.#finalizationRegistry.register(job, guarded, guarded);
    this.#recover(reference);
    // Only now: without a job, the process would leave their election.
    if (previous) this.#deactivate(previous);
    return () => this.#remove(guarded);
  }

  #remove(guarded: GuardedJob): void {
    if (this.#guardedJobs.get(guarded.key) === guarded) this.#guardedJobs.delete(guarded.key);
    this.#deactivate(guarded);
  }

  /** Keeps nothing that the deactivation references: through the election, it would keep the job from being collected. */
  #deactivate(guarded: GuardedJob): void {
    const { deactivate } = guarded;
    guarded.deactivate = () => undefined;
    this.#finalizationRegistry.unregister(guarded);
    deactivate();
  }

  isGuarded(key: string): boolean {
    return this.#guardedJobs.get(key)?.reference.deref() !== undefined;
  }

  get keys(): readonly string[] {
    return [...this.#decoratedJobs.keys(), ...this.#guardedJobs.keys()];
  }

  /** The decorated jobs that need a leader or recover ticks. */
  get watchedKeys(): readonly string[] {
    return [...this.#watchedJobs].map(({ key }) => key);
  }

  /** The jobs in the order of their keys. */
  get all(): readonly Job[] {
    return this.keys.toSorted().flatMap((key) => this.find(key) ?? []);
  }

  find(key: string): Job | undefined {
    return this.#decoratedJobs.get(key) ?? this.#guardedJobs.get(key)?.reference.deref();
  }

  /** Recovers what happened while this process was down, and from now on checks the scheduler every second. */
  start(): void {
    this.#isStarted = true;
    for (const { reference } of this.#guardedJobs.values()) this.#recover(reference);
    this.#checkJobs();
  }

  #checkJobs(): void {
    const { stopping, elections, recovery } = this.#parts;
    if (this.#watchedJobs.size === 0 || stopping.aborted) return;
    for (const job of this.#watchedJobs) {
      const { leader } = job.options;
      if (job.isFiring()) {
        if (!this.#deactivations.has(job))
          this.#deactivations.set(job, this.#activate(job, { deref: () => job }));
        if (leader !== undefined) elections.startDeferred(leader);
        recovery.recoverIfRescheduled(job);
        this.#warned.delete(job);
      } else {
        this.#deactivations.get(job)?.();
        this.#deactivations.delete(job);
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
  #activate(job: Job, reference: JobReference): () => void {
    const leave = this.#join(job, reference);
    this.#recover(reference);
    return leave;
  }

  /** Joins the job's election, if it has one. The returned function leaves it. */
  #join({ key: location, options: { leader } }: Job, reference: JobReference): () => void {
    const { elections, stopping } = this.#parts;
    if (leader === undefined || stopping.aborted) return () => undefined;
    // Each new term starts a recovery, because ticks may have passed while no process led.
    const run = () => this.#recover(reference);
    const isFiring = () => reference.deref()?.isFiring() ?? false;
    return elections.joinForJob(leader, { location, run, isFiring });
  }

  #recover(reference: JobReference): void {
    const job = reference.deref();
    if (job && this.#isStarted) this.#parts.recovery.recover(job);
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
