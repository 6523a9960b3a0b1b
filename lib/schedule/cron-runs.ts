import { Inject, Logger } from '@nestjs/common';
import { Shared } from '../core/copies.js';
import { LockConfigError } from '../core/errors.js';
import { Faults } from '../core/faults.js';
import { withJson } from '../core/json.js';
import { tickStoreKey } from '../core/key.js';
import type { Locks } from '../core/locks.js';
import { shown } from '../core/shown.js';
import { checkModuleName, withoutBrackets } from '../decorators/method-place.js';
import type { CronRun } from './cron-run.js';
import { type GuardSchedule, GuardTicks } from './guard-ticks.js';
import type { Job, JobOptions } from './job.js';
import type { JobRunner } from './job-runner.js';
import { type CronRunRecord, recordsFrom } from './run-story.js';
import { SINGLETON_JOB_OPTIONS, findJobFaults } from './singleton-cron.options.js';

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
@Shared('CronRuns')
export class CronRuns {
  readonly #runner: JobRunner;
  readonly #locks: Locks;
  readonly #guarded = new WeakSet<Job>();
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
    const records = recordsFrom(await this.#locks.notes(key));
    const runs = await Promise.all(records.map((record) => this.#judged(key, record)));
    const nextMs = this.#runner.jobOf(key)?.plan?.next(this.#locks.clock.wallMs());
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
    const place = `CronRuns.guard(${shown(key)})`;
    checkGuard(place, key, options, body);
    const present = this.#runner.jobOf(key);
    if (present && !this.#guarded.has(present)) {
      throw new LockConfigError(
        `${place}: expected a key of its own, got that of a method with @SingletonCron.`,
      );
    }
    const { cronTime: _, timeZone: __, utcOffset: ___, everyMs: ____, ...rest } = options;
    const logger = this.#logger;
    const onError = (error: unknown) => logger.error(error);
    const runner = this.#runner;
    const locks = this.#locks;
    const ticks = new GuardTicks(options, place);
    const job: Job = {
      key,
      options: rest,
      plan: ticks.plan,
      isFiring: () => runner.jobOf(key) === job,
      onError,
      enter: () => fire(),
    };
    const { fire, letGo } = runner.guard(job, body);
    this.#guarded.add(job);
    let isKept = true;
    const fireFor = async (caller: unknown): Promise<void> => {
      if (ticks.areOthersOf(caller, locks.clock.wallMs())) logger.warn(otherTicks(place));
      if (isKept && !job.isFiring()) {
        isKept = false;
        logger.warn(calledInVain(place));
      }
      await fire().catch(onError);
    };
    const onTick = function (this: unknown): Promise<void> {
      return fireFor(this);
    };
    const dispose = () => {
      isKept = false;
      letGo();
    };
    return Object.assign(onTick, { [Symbol.dispose]: dispose });
  }

  /** Of a run whose end was not told the store knows whether it is on. */
  async #judged(key: string, record: CronRunRecord): Promise<CronRunRecord> {
    if (record.ended !== null) return withJson(record);
    const places = [undefined, tickStoreKey(this.#locks.namespace, key, record.tick.getTime())];
    const present = await Promise.all(places.map((place) => this.#locks.runOf(key, place)));
    const isOn = present.some((run) => run?.fencingToken === record.fencingToken);
    return withJson(isOn ? record : { ...record, outcome: 'dead' });
  }
}

function checkGuard(place: string, key: string, options: GuardOptions, body: unknown): void {
  const faults = new Faults();
  const known = [...SINGLETON_JOB_OPTIONS, 'cronTime', 'timeZone', 'utcOffset', 'everyMs'];
  const { everyMs, cronTime } = faults.object('options', options, known);
  faults.text('key', key, { max: 255 });
  faults.wholeMs('options.everyMs', everyMs, { min: 1 });
  if ((everyMs === undefined) === (cronTime === undefined))
    faults.add(`expected either options.cronTime or options.everyMs${givenUndefined(options)}`);
  faults.expect('the body', body ?? null, 'a function', typeof body === 'function');
  findJobFaults(faults, options);
  faults.throwIfAny(place);
}

/** A variable that is not set looks like an option that is left out. */
function givenUndefined(options: unknown): string {
  const named = ['cronTime', 'everyMs'].filter((name) => name in Object(options));
  const empty = named.filter((name) => (options as Record<string, unknown>)[name] === undefined);
  if (empty.length === 0) return '';
  return `, got undefined for ${empty.join(' and ')}; if it comes from an environment variable, set that variable`;
}

const otherTicks = (place: string) =>
  `${place} was given another schedule than the CronJob that calls it has. Its ticks are those of guard(), so that all ` +
  `replicas have the same: give both one expression and one time zone. Instead of setTime(), delete the CronJob and add another ` +
  `one with what guard() returns for the new time.`;

const calledInVain = (place: string) =>
  `${place} was called again, but the onTick that it returned before is still called. That onTick runs nothing: delete the ` +
  `CronJob or the interval that calls it, and dispose of it.`;

/** What Nest knows them by: the class itself, or a text for a named module. */
export const getCronRunsToken = (name?: string): typeof CronRuns | string =>
  name === undefined ? CronRuns : `${name}CronRuns`;

/** Injects those of the module with this name; without one, of the unnamed module. */
export function InjectCronRuns(name?: string): PropertyDecorator & ParameterDecorator;
export function InjectCronRuns(name?: string, ...more: unknown[]): PropertyDecorator & ParameterDecorator {
  if (more.length > 0) throw withoutBrackets('InjectCronRuns', name, more[0]);
  checkModuleName('InjectCronRuns', name);
  return Inject(getCronRunsToken(name));
}
