import { Logger } from '@nestjs/common';
import type { CronTime } from 'cron';
import { LockConfigError } from '../core/errors.js';
import { formatValue } from '../core/format.js';
import type { Locks } from '../core/locks.js';
import { OptionErrors } from '../core/option-errors.js';
import type { JobRunner } from './job-runner.js';
import { type CronRun, type Job, type JobOptions, logJobError } from './job.js';
import { type CronSchedule, type Plan, ReschedulablePlan, createIntervalPlan } from './plan/plan.js';
import { describeCron, describeInterval } from './plan/schedule-text.js';
import { JOB_OPTION_NAMES, collectJobErrors } from './singleton-cron.options.js';

type GuardSchedule =
  | ({ readonly everyMs?: never } & CronSchedule)
  | {
      readonly everyMs: number;
      readonly cronTime?: never;
      readonly timeZone?: never;
      readonly utcOffset?: never;
    };

/** The schedule of the `CronJob` or interval that calls the guard, and the options of `@SingletonCron`. */
export type GuardOptions = Omit<JobOptions, 'deployKey'> & GuardSchedule;

/** Fires a guarded job once. Never rejects. `[Symbol.dispose]()` unregisters the job. */
export interface GuardedTick extends Disposable {
  (): Promise<void>;
}

interface GuardParts {
  readonly runner: JobRunner;
  readonly locks: Locks;
  readonly key: string;
  readonly options: GuardOptions;
  readonly body: (run: CronRun) => unknown;
}

const logger = new Logger('Scheduler');

/** See `CronRuns.guard()`. */
export function guardJob({ runner, locks, key, options, body }: GuardParts): GuardedTick {
  const location = `CronRuns.guard(${formatValue(key)})`;
  checkGuardOptions(location, key, options, body);
  if (runner.jobs.find(key) && !runner.jobs.isGuarded(key)) {
    throw new LockConfigError(
      `${location}: expected a key of its own, got that of a method with @SingletonCron.`,
    );
  }
  const { cronTime: _, timeZone: __, utcOffset: ___, everyMs: ____, ...jobOptions } = options;
  const guardPlan = new GuardPlan(options, location);
  const job: Job = {
    key,
    options: jobOptions,
    plan: guardPlan.plan,
    schedule: options.everyMs === undefined ? describeCron(options) : describeInterval(options.everyMs),
    isFiring: () => runner.jobs.find(key) === job,
    onError: logJobError,
    invoke: () => fire(),
  };
  const { fire, unregister } = runner.guard(job, body);
  let shouldWarn = true;
  const fireFor = async (caller: unknown): Promise<void> => {
    if (guardPlan.differsFrom(caller, locks.clock.wallMs())) logger.warn(scheduleMismatchWarning(location));
    if (shouldWarn && !job.isFiring()) {
      shouldWarn = false;
      logger.warn(replacedGuardWarning(location));
    }
    await fire().catch(logJobError);
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

/** The ticks of a guard. They follow from its options alone, so that all replicas have the same ticks. */
class GuardPlan {
  readonly plan: Plan;
  readonly #cronPlan: ReschedulablePlan | undefined;
  readonly #reportedTimes = new WeakSet<CronTime>();

  constructor(options: GuardSchedule, location: string) {
    this.#cronPlan = options.everyMs === undefined ? new ReschedulablePlan(options, location) : undefined;
    this.plan = this.#cronPlan?.getPlan() ?? createIntervalPlan(options.everyMs as number);
  }

  /** Whether the caller is a `CronJob` with other ticks. `true` once for each time that `setTime()` sets. */
  differsFrom(caller: unknown, nowMs: number): boolean {
    try {
      // A CronJob calls its `onTick` on itself, unless it was given a `context`.
      const time = (caller as { cronTime?: CronTime } | undefined)?.cronTime;
      if (!this.#cronPlan || !time || this.#reportedTimes.has(time)) return false;
      const callerPlan = this.#cronPlan.getPlan(time);
      if (callerPlan === this.plan) return false;
      // One schedule can be written in several ways. So compare the due tick and the one after it, not the texts.
      const hasOtherTicks =
        callerPlan.latest(nowMs) !== this.plan.latest(nowMs) ||
        callerPlan.next(nowMs) !== this.plan.next(nowMs);
      if (hasOtherTicks) this.#reportedTimes.add(time);
      return hasOtherTicks;
    } catch {
      return false; // The user's `context` may be a proxy that throws when an unknown property is read.
    }
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
