import { Logger } from '@nestjs/common';
import { LockConfigError } from '../core/errors.js';
import { formatValue } from '../core/format.js';
import { withJson } from '../core/json.js';
import { tickStoreKey } from '../core/key.js';
import type { Locks } from '../core/locks.js';
import { OptionErrors } from '../core/option-errors.js';
import { SharedAcrossCopies } from '../core/package-copies.js';
import { createInjectDecorator } from '../decorators/decorated-method.js';
import type { CronRun } from './job.js';
import type { JobRunner } from './job-runner.js';
import type { Job, JobOptions } from './job.js';
import { GuardPlan, type GuardSchedule } from './registry/guard-plan.js';
import { type CronRunRecord, decodeRecords } from './run-history.js';
import { JOB_OPTION_NAMES, collectJobErrors } from './singleton-cron.options.js';

/** The history of a job. As JSON, fencing tokens are texts. */
export interface CronHistory {
  /** The last runs of all replicas, the newest first. Best effort: a run may be missing, and no decision depends on it. */
  readonly runs: readonly CronRunRecord[];
  /** The next planned tick; `null` if there is none, or if this process does not have the job. */
  readonly nextTick: Date | null;
}

/** The schedule of the `CronJob` or interval that calls the guard, and the options of `@SingletonCron`. */
export type GuardOptions = Omit<JobOptions, 'deployKey'> & GuardSchedule;

/** Fires a guarded job once. Never rejects. `[Symbol.dispose]()` unregisters the job. */
export interface GuardedTick extends Disposable {
  (): Promise<void>;
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
  readonly #guardedJobs = new WeakSet<Job>();
  readonly #logger = new Logger('Scheduler');

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
    const nextMs = this.#runner.findJob(key)?.plan?.next(this.#locks.clock.wallMs());
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
    const location = `CronRuns.guard(${formatValue(key)})`;
    checkGuardOptions(location, key, options, body);
    const existing = this.#runner.findJob(key);
    if (existing && !this.#guardedJobs.has(existing)) {
      throw new LockConfigError(
        `${location}: expected a key of its own, got that of a method with @SingletonCron.`,
      );
    }
    const { cronTime: _, timeZone: __, utcOffset: ___, everyMs: ____, ...rest } = options;
    const logger = this.#logger;
    const onError = (error: unknown) => logger.error(error);
    const runner = this.#runner;
    const locks = this.#locks;
    const guardPlan = new GuardPlan(options, location);
    const job: Job = {
      key,
      options: rest,
      plan: guardPlan.plan,
      isFiring: () => runner.findJob(key) === job,
      onError,
      invoke: () => fire(),
    };
    const { fire, unregister } = runner.guard(job, body);
    this.#guardedJobs.add(job);
    let shouldWarn = true;
    const fireFor = async (caller: unknown): Promise<void> => {
      if (guardPlan.differsFrom(caller, locks.clock.wallMs())) logger.warn(scheduleMismatchWarning(location));
      if (shouldWarn && !job.isFiring()) {
        shouldWarn = false;
        logger.warn(replacedGuardWarning(location));
      }
      await fire().catch(onError);
    };
    const onTick = function (this: unknown): Promise<void> {
      return fireFor(this);
    };
    const dispose = () => {
      shouldWarn = false;
      unregister();
    };
    return Object.assign(onTick, { [Symbol.dispose]: dispose });
  }

  /** If the end of a run was not recorded, its lock in the store shows whether the run is still in progress. */
  async #resolveOutcome(key: string, record: CronRunRecord): Promise<CronRunRecord> {
    if (record.ended !== null) return withJson(record);
    const storeKeys = [undefined, tickStoreKey(this.#locks.namespace, key, record.tick.getTime())];
    const currentRuns = await Promise.all(storeKeys.map((storeKey) => this.#locks.inspectRun(key, storeKey)));
    const isRunning = currentRuns.some((run) => run?.fencingToken === record.fencingToken);
    return withJson(isRunning ? record : { ...record, outcome: 'dead' });
  }
}

function checkGuardOptions(location: string, key: string, options: GuardOptions, body: unknown): void {
  const errors = new OptionErrors();
  const known = [...JOB_OPTION_NAMES, 'cronTime', 'timeZone', 'utcOffset', 'everyMs'];
  const { everyMs, cronTime } = errors.object('options', options, known);
  errors.text('key', key, { max: 255 });
  errors.integerMs('options.everyMs', everyMs, { min: 1 });
  if ((everyMs === undefined) === (cronTime === undefined))
    errors.add(`expected either options.cronTime or options.everyMs${describeUndefinedOptions(options)}`);
  errors.expect('the body', body ?? null, 'a function', typeof body === 'function');
  collectJobErrors(errors, options);
  errors.throwIfAny(location);
}

/** Names options that are present as `undefined`, which often come from an environment variable that is not set. */
function describeUndefinedOptions(options: unknown): string {
  const named = ['cronTime', 'everyMs'].filter((name) => name in Object(options));
  const empty = named.filter((name) => (options as Record<string, unknown>)[name] === undefined);
  if (empty.length === 0) return '';
  return `, got undefined for ${empty.join(' and ')}; if it comes from an environment variable, set that variable`;
}

const scheduleMismatchWarning = (location: string) =>
  `${location} has another schedule than the CronJob that calls it. Its ticks are those of guard(), so that all replicas have ` +
  `the same ones: give both the same expression and time zone. Instead of setTime(), delete the CronJob and add another one ` +
  `with the onTick that guard() returns for the new time.`;

const replacedGuardWarning = (location: string) =>
  `${location} was called again, but the onTick that it returned before is still being called. That onTick runs nothing: delete ` +
  `the CronJob or the interval that calls it, and dispose of it.`;

/** The provider token of `CronRuns`: the class itself, or a text for a named module. */
export const getCronRunsToken = (name?: string): typeof CronRuns | string =>
  name === undefined ? CronRuns : `${name}CronRuns`;

/** Injects the `CronRuns` of the module with this name; without a name, that of the unnamed module. */
export const InjectCronRuns: (name?: string) => PropertyDecorator & ParameterDecorator =
  createInjectDecorator('InjectCronRuns', getCronRunsToken);
