import { Inject, Logger } from '@nestjs/common';
import { SharedAcrossCopies } from '../core/package-copies.js';
import { LockConfigError } from '../core/errors.js';
import { OptionErrors } from '../core/option-errors.js';
import { withJson } from '../core/json.js';
import { tickStoreKey } from '../core/key.js';
import type { Locks } from '../core/locks.js';
import { formatValue } from '../core/format.js';
import { checkModuleName, decoratorNotCalledError } from '../decorators/decorated-method.js';
import type { CronRun } from './cron-run.js';
import { type GuardSchedule, GuardPlan } from './registry/guard-plan.js';
import type { Job, JobOptions } from './job.js';
import type { JobRunner } from './job-runner.js';
import { type CronRunRecord, decodeRecords } from './run-history.js';
import { JOB_OPTION_NAMES, collectJobErrors } from './singleton-cron.options.js';

/** What became of a job. As JSON, fencing tokens are texts. */
export interface CronHistory {
  /** The last runs of all replicas, the newest first. Best effort: nothing is decided by it. */
  readonly runs: readonly CronRunRecord[];
  /** The next planned tick; `null` if there is none, or the job is not one of this process. */
  readonly nextTick: Date | null;
}

/** The schedule of the `CronJob` or the interval that will fire, and what `@SingletonCron` knows besides. */
export type GuardOptions = Omit<JobOptions, 'deployKey'> & GuardSchedule;

/** Fires a guarded job once; disposing of it lets the job go. Never rejects. */
export interface GuardedTick extends Disposable {
  (): Promise<void>;
}

interface CronRunsParts {
  readonly runner: JobRunner;
  readonly locks: Locks;
}

/** What became of jobs, and guards for those that are made at run time. By injection. */
@SharedAcrossCopies('CronRuns')
export class CronRuns {
  readonly #runner: JobRunner;
  readonly #locks: Locks;
  readonly #guardedJobs = new WeakSet<Job>();
  readonly #logger = new Logger('Scheduler');

  /** Made by `DistributedLockModule`; not by hand. */
  constructor({ runner, locks }: CronRunsParts) {
    this.#runner = runner;
    this.#locks = locks;
  }

  /**
   * The last runs of the job with this key, also of other processes, and its next planned tick.
   *
   * @throws LockUnavailableError
   */
  async history(key: string): Promise<CronHistory> {
    const records = decodeRecords(await this.#locks.readHistory(key));
    const runs = await Promise.all(records.map((record) => this.#resolveOutcome(key, record)));
    const nextMs = this.#runner.findJob(key)?.plan?.next(this.#locks.clock.wallMs());
    return withJson({ runs, nextTick: nextMs === undefined ? null : new Date(nextMs) });
  }

  /**
   * Guards a job that is added through `SchedulerRegistry`: what this returns is its `onTick`. Like `@SingletonCron`, it
   * runs the body once in the cluster for each tick of that schedule. What the body throws goes to the log of Nest's
   * scheduler.
   *
   * Call `onTick[Symbol.dispose]()` when the job is deleted: the process then takes no part in it, and in its `leader`
   * election, any more, and calls run nothing. A job whose `onTick` nobody keeps is let go with the garbage. Guarding a key
   * again lets go of the first, as when its expression has changed; a warning says so if the first is still called.
   *
   * The ticks are those of the options, in all replicas. So `setTime()` of the `CronJob` does not change them: delete the
   * `CronJob`, and add another one with what `guard()` returns for the new time. A warning says so when a `CronJob` with other
   * ticks calls this.
   *
   * @throws LockConfigError
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

  /** Of a run whose end was not told the store knows whether it is on. */
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

/** A variable that is not set looks like an option that is left out. */
function describeUndefinedOptions(options: unknown): string {
  const named = ['cronTime', 'everyMs'].filter((name) => name in Object(options));
  const empty = named.filter((name) => (options as Record<string, unknown>)[name] === undefined);
  if (empty.length === 0) return '';
  return `, got undefined for ${empty.join(' and ')}; if it comes from an environment variable, set that variable`;
}

const scheduleMismatchWarning = (location: string) =>
  `${location} was given another schedule than the CronJob that calls it has. Its ticks are those of guard(), so that all ` +
  `replicas have the same: give both one expression and one time zone. Instead of setTime(), delete the CronJob and add another ` +
  `one with what guard() returns for the new time.`;

const replacedGuardWarning = (location: string) =>
  `${location} was called again, but the onTick that it returned before is still called. That onTick runs nothing: delete the ` +
  `CronJob or the interval that calls it, and dispose of it.`;

/** What Nest knows them by: the class itself, or a text for a named module. */
export const getCronRunsToken = (name?: string): typeof CronRuns | string =>
  name === undefined ? CronRuns : `${name}CronRuns`;

/** Injects those of the module with this name; without one, of the unnamed module. */
export function InjectCronRuns(name?: string): PropertyDecorator & ParameterDecorator;
export function InjectCronRuns(name?: string, ...more: unknown[]): PropertyDecorator & ParameterDecorator {
  if (more.length > 0) throw decoratorNotCalledError('InjectCronRuns', name, more[0]);
  checkModuleName('InjectCronRuns', name);
  return Inject(getCronRunsToken(name));
}
