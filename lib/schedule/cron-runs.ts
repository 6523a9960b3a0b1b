import { withJson } from '../core/json.js';
import type { Locks } from '../core/locks.js';
import { SharedAcrossCopies } from '../core/package-copies.js';
import { createInjectDecorator } from '../decorators/decorated-method.js';
import { type GuardOptions, type GuardedTick, guardJob } from './guard.js';
import type { JobRunner } from './job-runner.js';
import type { CronRun } from './job.js';
import { type CronRunRecord, decodeRecords } from './job-run.js';
import { possibleStoreKeys } from './tick-claim.js';

/** The history of a job. As JSON, fencing tokens are texts. */
export interface CronHistory {
  /** The last runs of all replicas, the newest first. Best effort: a run may be missing, and no decision depends on it. */
  readonly runs: readonly CronRunRecord[];
  /** The next planned tick; `null` if there is none, or if this process does not have the job. */
  readonly nextTick: Date | null;
}

interface CronRunsParts {
  readonly runner: JobRunner;
  readonly locks: Locks;
}

/** Reads the history of jobs, and guards jobs that are created at run time. Inject it. */
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
    const records = decodeRecords(await this.#locks.readHistory(key));
    const runs = await Promise.all(records.map((record) => this.#resolveOutcome(key, record)));
    const nextMs = this.#runner.jobs.find(key)?.plan?.next(this.#locks.clock.wallMs());
    return withJson({ runs, nextTick: nextMs === undefined ? null : new Date(nextMs) });
  }

  /**
   * Guards a job that you add through `SchedulerRegistry`. Use the returned function as its `onTick`. Like `@SingletonCron`,
   * it runs the body once in the cluster for each tick of the schedule. Errors of the body are logged by Nest's scheduler
   * logger.
   *
   * Call `onTick[Symbol.dispose]()` when the job is deleted. The process then no longer takes part in the job and its `leader`
   * election, and further calls run nothing. A job whose `onTick` is garbage-collected ends in the same way. Guarding a key
   * again, for example with a new expression, replaces the first guard. A warning is logged if the first one is still called.
   *
   * The ticks are those of the options, in all replicas. `setTime()` of the `CronJob` does not change them: delete the
   * `CronJob`, and add another one with the `onTick` that `guard()` returns for the new time. A warning is logged when a
   * `CronJob` with other ticks calls this function.
   *
   * @throws LockConfigError for a wrong key, option or body, or if a method with `@SingletonCron` has this key
   */
  guard(key: string, options: GuardOptions, body: (run: CronRun) => unknown): GuardedTick {
    return guardJob({ runner: this.#runner, locks: this.#locks, key, options, body });
  }

  /** If the end of a run was not recorded, its lock in the store shows whether the run is still in progress. */
  async #resolveOutcome(key: string, record: CronRunRecord): Promise<CronRunRecord> {
    if (record.ended !== null) return withJson(record);
    const storeKeys = possibleStoreKeys(key, record.tick.getTime(), this.#locks);
    const currentRuns = await Promise.all(storeKeys.map((storeKey) => this.#locks.inspectRun(key, storeKey)));
    const isRunning = currentRuns.some((run) => run?.fencingToken === record.fencingToken);
    return withJson(isRunning ? record : { ...record, outcome: 'dead' });
  }
}

/** The provider token of `CronRuns`: the class itself, or a text for a named module. */
export const getCronRunsToken = (name?: string): typeof CronRuns | string =>
  name === undefined ? CronRuns : `${name}CronRuns`;

/** Injects the `CronRuns` of the module with this name; without a name, that of the unnamed module. */
export const InjectCronRuns: (name?: string) => PropertyDecorator & ParameterDecorator =
  createInjectDecorator('InjectCronRuns', getCronRunsToken);
