import { LockConfigError } from '../core/errors.js';
import { formatValue } from '../core/format.js';
import { withJson } from '../core/json.js';
import type { Locks } from '../core/locks.js';
import { SharedAcrossCopies } from '../core/package-copies.js';
import { createInjectDecorator } from '../decorators/decorated-method.js';
import { type GuardOptions, type GuardedTick, guardJob } from './dynamic-job.js';
import type { JobInfo } from './job-reader.js';
import type { JobRunner } from './job-runner.js';
import type { CronRun, Job } from './job.js';
import type { CronRunRecord } from './run-record.js';

/** The history of a job. In JSON, fencing tokens are strings. */
export interface CronHistory {
  /**
   * The last runs of all replicas, the newest first. Best effort: a run may be missing.
   */
  readonly runs: readonly CronRunRecord[];
  /** The next planned tick; `null` if there is none, or if this process does not have the job. */
  readonly nextTick: Date | null;
  /** Whether the job is paused: then its ticks are skipped. */
  readonly isPaused: boolean;
}

interface CronRunsParts {
  readonly runner: JobRunner;
  readonly locks: Locks;
}

/** How many jobs are read at once. */
const JOBS_AT_ONCE = 10;

/** Reads, runs and pauses jobs, and guards dynamic jobs (created at run time). Inject it. */
@SharedAcrossCopies('CronRuns')
export class CronRuns {
  readonly #runner: JobRunner;
  readonly #locks: Locks;

  /** Created by `DistributedLockModule`; do not create it yourself. */
  constructor({ runner, locks }: CronRunsParts) {
    this.#runner = runner;
    this.#locks = locks;
  }

  /**
   * Returns the last runs of the job with this key, including those of other processes, and its next planned tick.
   *
   * @throws LockUnavailableError if the store cannot be reached
   */
  async history(key: string): Promise<CronHistory> {
    const runs = await this.#runner.reader.readRuns(key);
    const nextMs = this.#runner.jobs.find(key)?.plan?.next(this.#locks.clock.wallMs());
    const { isPaused = false } = await this.#locks.jobs.readTicks(key);
    return withJson({ runs, nextTick: nextMs === undefined ? null : new Date(nextMs), isPaused });
  }

  /**
   * Returns the state of every job that this process guards, in the order of their keys.
   *
   * @throws LockUnavailableError if the store cannot be reached
   */
  async jobs(): Promise<JobInfo[]> {
    const { jobs, reader } = this.#runner;
    const infos: JobInfo[] = [];
    // A few at a time, so that the locks of the application do not wait behind hundreds of requests.
    const all = [...jobs.all];
    while (all.length > 0) {
      const reports = await Promise.all(all.splice(0, JOBS_AT_ONCE).map((job) => reader.read(job)));
      infos.push(...reports.map(({ info }) => info));
    }
    return infos;
  }

  /**
   * Runs the job at once in this process, through all decorators of its method, and resolves with the record of the run
   * when it has ended. What the method throws is logged, and is in the record as `failed`.
   *
   * The run happens once in the whole cluster: if several replicas call this at the same time, one of them runs the job,
   * and the others get its record. While a run is in progress, none begins, and you get the record of that run, with the
   * outcome `running`. With `overlap: 'allow'`, only runs of this method count as such.
   *
   * The run belongs to no tick. A tick that is due meanwhile runs when it has ended, in this process or in another one
   * whose scheduler fires the job. It also runs while the job is paused or disabled. If its replica dies, it is not retried.
   *
   * @throws LockConfigError if this process has no such job, if the job has a `deployKey`, if this process does not lead the
   * election of the job, and if another decorator does not call the method
   * @throws LockUnavailableError if the store cannot be reached. Then the job did not run.
   * @throws LockShutdownError if the application is shutting down
   */
  async runNow(key: string): Promise<CronRunRecord> {
    const { record, ended } = await this.#runner.manualRuns.start(this.#requireJob(key));
    return withJson(await (ended ?? record));
  }

  /**
   * Guards a job that you add through `SchedulerRegistry`. Use the returned function as its `onTick`. Like
   * `@SingletonCron`, it runs the body once in the cluster for each tick of the schedule. The body must return a complete
   * value, no stream. Errors of the body are logged by Nest's scheduler logger.
   *
   * When you delete the job, call `onTick[Symbol.dispose]()`. The process then no longer takes part in the job and its
   * `leader` election, and further calls run nothing. The same happens if `onTick` is garbage-collected, so keep a
   * reference to it. If you guard a key again, for example with a new expression, the new guard replaces the first one.
   * A warning is logged if the first one is still called.
   *
   * The options define the ticks, so they must be the same in all replicas. `setTime()` of the `CronJob` does not
   * change the ticks. To change them, delete the `CronJob`, call `guard()` with the new time, and add another `CronJob`
   * with the result. A warning is logged if a `CronJob` with another schedule calls this function.
   *
   * @throws LockConfigError for a wrong key, option or body, if a method with `@SingletonCron` has this key, or if the store
   *   does not allow a lease of the job or of its election. Then an earlier guard of the key remains.
   */
  guard(key: string, options: GuardOptions, body: (run: CronRun) => unknown): GuardedTick {
    return guardJob({ runner: this.#runner, locks: this.#locks, key, options, body });
  }

  /**
   * Pauses the job with this key in the whole cluster, until {@link resume}. Its ticks are skipped as `paused`; a run in
   * progress continues. The pause is kept in the store, so it also survives a restart of all replicas.
   *
   * @throws LockConfigError if this process has no such job
   * @throws LockUnavailableError if the store cannot be reached
   */
  async pause(key: string): Promise<void> {
    this.#requireJob(key);
    await this.#locks.jobs.setPaused(key, true);
  }

  /**
   * Ends a pause. The job continues with its next tick: ticks of the pause do not run, not even with `onMissed: 'once'`.
   *
   * @throws LockConfigError if this process has no such job
   * @throws LockUnavailableError if the store cannot be reached
   */
  async resume(key: string): Promise<void> {
    this.#requireJob(key);
    await this.#locks.jobs.setPaused(key, false);
  }

  #requireJob(key: string): Job {
    const job = this.#runner.jobs.find(key);
    if (job) return job;
    throw new LockConfigError(
      `CronRuns: expected the key of a job of this process, got ${formatValue(key)}. It has ` +
        `${this.#runner.jobs.keys.map((each) => `'${each}'`).join(', ') || 'no jobs'}.`,
    );
  }
}

/** The provider token of `CronRuns`: the class itself, or a text for a named module. */
export const getCronRunsToken = (name?: string): typeof CronRuns | string =>
  name === undefined ? CronRuns : `${name}CronRuns`;

/** Injects the `CronRuns` of the module with this name; without a name, that of the unnamed module. */
export const InjectCronRuns: (name?: string) => PropertyDecorator & ParameterDecorator =
  createInjectDecorator('InjectCronRuns', getCronRunsToken);
