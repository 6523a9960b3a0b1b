import { Logger } from '@nestjs/common';
import type { DiscoveryService } from '@nestjs/core';
import type { CronTime } from 'cron';
import { systemClock } from '../core/clock.js';
import { LockConfigError } from '../core/errors.js';
import { reasonOf, shown } from '../core/shown.js';
import { keptFor } from '../decorators/method-metadata.js';
import { placeOf } from '../decorators/method-place.js';
import type { Method } from '../decorators/replace-method.js';
import { type Seated, findSeated } from '../decorators/seated.explorer.js';
import type { Job } from './job.js';
import { type JobRunner, jobRunnerSeat } from './job-runner.js';
import { LivePlan } from './live-plan.js';
import { type CronSchedule, type Plan, intervalPlan } from './plan.js';
import type { GivenSchedule, Scheduler } from './scheduler.js';
import { SINGLETON_CRON, type SingletonCronGuard, twoSchedules } from './singleton-cron.decorator.js';

/** Where `@nestjs/schedule` leaves what its decorators were given. Not exported by it, the same since version 1. */
const CRON = 'SCHEDULE_CRON_OPTIONS';
const INTERVAL = 'SCHEDULE_INTERVAL_OPTIONS';
const TIMEOUT = 'SCHEDULE_TIMEOUT_OPTIONS';
const NAME = 'SCHEDULER_NAME';

interface Found extends Pick<Seated, 'instance'> {
  readonly name: string;
  readonly method: Method;
  readonly guard: SingletonCronGuard;
}

interface JobParts extends Pick<Job, 'onError'> {
  readonly moduleName: string | undefined;
  /** Without one, in tests, all jobs count as fired unless they are disabled. */
  readonly scheduler: Scheduler | undefined;
}

/**
 * Finds the guarded jobs of the application and registers them.
 *
 * @throws LockConfigError for a job without a schedule, and for two methods with one key
 */
export function registerJobs(
  discovery: DiscoveryService,
  runner: JobRunner,
  parts: JobParts,
): readonly Job[] {
  const methods = new Map<string, Found>();
  const twins = new Set<string>();
  const jobs: Job[] = [];
  for (const found of findGuarded(discovery, parts.moduleName)) {
    const place = placeOf('SingletonCron', found.instance, found.name);
    const job = jobOf(found, place, parts);
    const other = methods.get(job.key);
    // One class provided twice is one job with two timers; the store lets one of them run, at random.
    if (other && (other.instance.constructor !== found.instance.constructor || other.name !== found.name)) {
      throw new LockConfigError(
        `${place}: expected a key of its own, got '${job.key}', which is also that of ` +
          `${other.instance.constructor.name}.${other.name}. One of them would never run; give each a key.`,
      );
    }
    if (runner.isGuarded(job.key)) {
      throw new LockConfigError(
        `${place}: expected a key of its own, got '${job.key}', which is also that of CronRuns.guard(). One of them would ` +
          `never run; give each a key.`,
      );
    }
    if (other && other.instance !== found.instance && !twins.has(job.key)) {
      twins.add(job.key);
      new Logger('DistributedLockModule').warn(severalInstances(job.key, found));
    }
    methods.set(job.key, found);
    runner.register({ instance: found.instance, method: found.name, guard: found.guard }, job);
    jobs.push(job);
  }
  return jobs;
}

/** Those of modules that were loaded after the boot, in words. No scheduler knows them. */
export function findLateJobs(
  discovery: DiscoveryService,
  runner: JobRunner,
  moduleName: string | undefined,
): readonly string[] {
  return [...findGuarded(discovery, moduleName)]
    .filter(({ instance, name }) => !runner.isRegistered(instance, name))
    .map(({ instance, name }) => placeOf('SingletonCron', instance, name));
}

function* findGuarded(discovery: DiscoveryService, moduleName: string | undefined): Generator<Found> {
  for (const { instance, isStatic, methods } of findSeated(discovery, jobRunnerSeat(moduleName))) {
    for (const { name, method, owner } of methods) {
      const visible = Reflect.getMetadata(SINGLETON_CRON, method) as SingletonCronGuard | undefined;
      const kept = keptFor<SingletonCronGuard>(SINGLETON_CRON, owner, name).at(-1);
      const guard = visible ?? kept?.value;
      if (!guard || guard.options.service !== moduleName) continue;
      if (!isStatic) throw neverRuns(placeOf('SingletonCron', instance, name));
      if (kept && !isScheduled(method) && isScheduled(kept.method)) throw hiddenSchedule(instance, name);
      yield { instance, name, method, guard };
    }
  }
}

const neverRuns = (place: string) =>
  new LockConfigError(
    `${place}: expected a provider that Nest makes once, got one that is request-scoped or transient, whose jobs ` +
      `@nestjs/schedule never runs, or runs on an instance that nobody else has. Move the job to a provider of its own.`,
  );

const hiddenSchedule = (instance: object, name: string) =>
  new LockConfigError(
    `${placeOf('SingletonCron', instance, name)}: expected @nestjs/schedule to see the schedule of the method, but a decorator above has wrapped the ` +
      `method without its metadata, or the constructor has bound it, so no timer would fire. Put that decorator below ` +
      `@SingletonCron, or @Cron or @Interval above it, or let it copy the metadata.`,
  );

function jobOf(
  { instance, name, method, guard }: Found,
  place: string,
  { onError, scheduler }: JobParts,
): Job {
  const { key, timeZone: _, service: __, ...options } = guard.options;
  const given = givenTo(method);
  const planNow = planOf(method, guard, place);
  return {
    key: key ?? given.name ?? defaultKey(instance, name, place),
    get plan() {
      return planNow(scheduler?.cronTimeOf(given));
    },
    options,
    isFiring: () => (scheduler ? scheduler.isFiring(given) : given.cron?.disabled !== true),
    enter: () => instance[name]?.(),
    onError,
  };
}

/** Nest's `mixin()` gives a class a random name, which is another one in each replica. */
const RANDOM_NAME = /^[0-9a-f]{21}$/;

function defaultKey(
  { constructor: { name: className } }: Found['instance'],
  name: string,
  place: string,
): string {
  if (className !== '' && !RANDOM_NAME.test(className)) return `${className}.${name}`;
  throw new LockConfigError(
    `${place}: expected a key, as the name of the class ${className === '' ? 'is empty' : 'is a random one of mixin()'}. ` +
      `Without a key, each replica would run each tick. Give one that is the same in all replicas and differs from class to ` +
      `class: @SingletonCron(…, { key: 'sync:eu' }).`,
  );
}

const severalInstances = (key: string, { instance, name }: Found) =>
  `The job '${key}' is provided by several instances of ${instance.constructor.name}. Each tick runs on one of them only, at ` +
  `random. If they are configured differently, as by a dynamic module that is imported twice, guard ${name}() of each with ` +
  `CronRuns.guard() and a key of its own. Otherwise provide the class once.`;

function isScheduled(method: Method): boolean {
  const { cron, interval, timeout } = givenTo(method);
  return (cron ?? interval ?? timeout) !== undefined;
}

const givenTo = (method: Method) => ({
  cron: Reflect.getMetadata(CRON, method) as (CronSchedule & { readonly disabled?: boolean }) | undefined,
  interval: Reflect.getMetadata(INTERVAL, method) as GivenSchedule['interval'],
  timeout: Reflect.getMetadata(TIMEOUT, method) as GivenSchedule['timeout'],
  name: Reflect.getMetadata(NAME, method) as string | undefined,
});

/** What the plan is when the job has this time. */
type PlanNow = (cronTime: CronTime | undefined) => Plan | undefined;

function planOf(
  method: Method,
  { options: { timeZone, deployKey }, expression, isGivenUndefined }: SingletonCronGuard,
  place: string,
): PlanNow {
  const { cron, interval, timeout } = givenTo(method);
  if ([cron, interval, timeout].filter((each) => each !== undefined).length > 1) throw twoSchedules(place);
  // A decorator above has put another schedule in the place of ours.
  if (expression !== undefined && cron?.cronTime !== expression) throw twoSchedules(place);
  if (cron && timeZone !== undefined && cron.timeZone !== timeZone) {
    throw new LockConfigError(
      `${place}: expected the time zone in the options of @Cron, got ${timeZone} here. Move it.`,
    );
  }
  if (deployKey !== undefined && !timeout) {
    throw new LockConfigError(
      `${place}: expected @Timeout of @nestjs/schedule beside deployKey, got another schedule or none. A tick of ` +
        `@Cron or @Interval runs once without it: leave it out.`,
    );
  }
  if (cron) {
    const plan = readCron(cron, place);
    return (cronTime) => plan.at(cronTime);
  }
  if (interval) {
    const plan = intervalPlan(interval.timeout);
    return () => plan;
  }
  if (timeout && deployKey !== undefined) return () => undefined;
  if (timeout) {
    throw new LockConfigError(
      `${place}: expected a deployKey beside @Timeout, such as the version of the application, as each start of it is ` +
        `the same to a store otherwise.`,
    );
  }
  throw withoutSchedule(place, isGivenUndefined);
}

const withoutSchedule = (place: string, isGivenUndefined: boolean) =>
  new LockConfigError(
    isGivenUndefined
      ? `${place}: expected a cron expression, or @Cron or @Interval of @nestjs/schedule on the same method, got undefined as ` +
          `the argument. If it comes from an environment variable, set that variable before this class is loaded.`
      : `${place}: expected @Cron or @Interval of @nestjs/schedule on the same method, got neither. Add one, or give the ` +
          `expression: @SingletonCron('0 * * * *').`,
  );

export function readCron(schedule: CronSchedule, place: string): LivePlan {
  const plan = read(() => new LivePlan(schedule), schedule, place);
  checkComes(plan.at(undefined), schedule, place);
  return plan;
}

function checkComes(plan: Plan, schedule: CronSchedule, place: string): void {
  const nowMs = systemClock.wallMs();
  if (plan.next(nowMs) !== undefined || plan.latest(nowMs) !== undefined) return;
  throw new LockConfigError(
    `${place}: expected a schedule with a time that comes, got ${shown(schedule.cronTime)}. Look at its days and months: 30 February ` +
      `never comes.`,
  );
}

function read<Read>(make: () => Read, schedule: CronSchedule, place: string): Read {
  try {
    return make();
  } catch (cause) {
    throw new LockConfigError(
      `${place}: expected a schedule that the cron package understands, got ${shown(schedule)} (${reasonOf(cause)}).`,
      { cause },
    );
  }
}
