import { Logger } from '@nestjs/common';
import type { DiscoveryService } from '@nestjs/core';
import type { CronTime } from 'cron';
import { LockConfigError } from '../../core/errors.js';
import { describeMethod, scopedProviderError } from '../../decorators/decorated-method.js';
import { findMethods } from '../../decorators/find-methods.js';
import { type JobRunner, getJobRunnerPropertyToken } from '../job-runner.js';
import { type Job, logJobError } from '../job.js';
import { type Plan, createIntervalPlan, readCronTime, ReschedulablePlan } from '../plan/plan.js';
import {
  type JobSchedule,
  describeCron,
  describeDeployment,
  describeInterval,
} from '../plan/schedule-text.js';
import { SINGLETON_CRON_METADATA, type SingletonCronGuard } from '../singleton-cron.decorator.js';
import { type GuardedMethod, checkSchedule, declaredName } from './declared-schedule.js';
import type { JobOverrides } from './job-overrides.js';
import { type MethodSchedule, type NestScheduler, isScheduled, readSchedule } from './nest-scheduler.js';

interface JobParts {
  readonly moduleName: string | undefined;
  readonly scheduler: NestScheduler;
  readonly overrides: JobOverrides;
  /** Under `LockTestingModule`, all jobs count as firing unless they are disabled. */
  readonly isTest: boolean;
}

/**
 * Finds the guarded jobs of the application and registers them with the runner.
 *
 * @throws LockConfigError for a job without a schedule, and for two methods with the same key
 */
export function registerJobs(
  discovery: DiscoveryService,
  runner: JobRunner,
  parts: JobParts,
): readonly Job[] {
  const logger = new Logger('DistributedLockModule');
  const methods = new Map<string, GuardedMethod>();
  const warnedKeys = new Set<string>();
  const jobs: Job[] = [];
  for (const found of findGuarded(discovery, parts.moduleName)) {
    const { location } = found;
    const job = createJob(found, parts);
    const other = methods.get(job.key);
    // One class provided twice is one job with two timers. The store grants each tick to one of them, at random.
    if (other && (other.instance.constructor !== found.instance.constructor || other.name !== found.name)) {
      throw new LockConfigError(
        `${location}: expected a key of its own, got '${job.key}', which is also that of ` +
          `${other.instance.constructor.name}.${other.name}. One of them would never run; give each a key.`,
      );
    }
    if (runner.jobs.isGuarded(job.key)) {
      throw new LockConfigError(
        `${location}: expected a key of its own, got '${job.key}', which is also that of CronRuns.guard(). One of them would ` +
          `never run; give each a key.`,
      );
    }
    if (other && other.instance !== found.instance && !warnedKeys.has(job.key)) {
      warnedKeys.add(job.key);
      logger.warn(multipleInstancesWarning(job.key, found));
    }
    if (!parts.isTest && isOwnDate(readSchedule(found.method))) logger.warn(ownDateWarning(location));
    methods.set(job.key, found);
    runner.register({ instance: found.instance, method: found.name, guard: found.guard }, job);
    jobs.push(job);
  }
  return jobs;
}

/** Describes the jobs of modules that were loaded after the boot. No scheduler fires them. */
export function findLazyJobs(
  discovery: DiscoveryService,
  runner: JobRunner,
  moduleName: string | undefined,
): readonly string[] {
  return [...findGuarded(discovery, moduleName)]
    .filter(({ instance, name }) => !runner.isRegistered(instance, name))
    .map(({ location }) => location);
}

function* findGuarded(discovery: DiscoveryService, moduleName: string | undefined): Generator<GuardedMethod> {
  const token = getJobRunnerPropertyToken(moduleName);
  const key = SINGLETON_CRON_METADATA;
  for (const found of findMethods<SingletonCronGuard>(discovery, { token, key })) {
    const decorated = found.metadata.at(-1);
    if (!decorated || decorated.value.options.service !== moduleName) continue;
    const location = describeMethod('SingletonCron', found.instance, found.name);
    if (!found.isStatic) throw scopedProviderError(location, SCOPED_CONSEQUENCE);
    if (!isScheduled(found.method) && isScheduled(decorated.method)) throw hiddenScheduleError(location);
    yield { ...found, location, guard: decorated.value };
  }
}

/** Whether each process has probably computed the date of the job from its own clock: others are rarely given in ms. */
const isOwnDate = ({ cron }: MethodSchedule) =>
  cron?.cronTime instanceof Date && cron.cronTime.getMilliseconds() !== 0;

const ownDateWarning = (location: string) =>
  `${location} is scheduled for a date with milliseconds, which each replica has probably computed for itself. Each of these ` +
  `dates is a tick of its own, so the method runs in every replica. Give all replicas the same date, or use @Timeout with ` +
  `@SingletonCron({ deployKey: … }) to run once for each deployment.`;

const SCOPED_CONSEQUENCE =
  '. @nestjs/schedule never runs its jobs, or runs them on an instance that nothing else uses';

const hiddenScheduleError = (location: string) =>
  new LockConfigError(
    `${location}: expected @nestjs/schedule to see the schedule of the method, but a decorator above has wrapped the ` +
      `method without its metadata, or the constructor has bound it, so no timer would fire. Put that decorator below ` +
      `@SingletonCron, or @Cron or @Interval above it, or let it copy the metadata.`,
  );

function createJob(found: GuardedMethod, { scheduler, overrides, isTest }: JobParts): Job {
  const { instance, name, location, guard } = found;
  const { key: givenKey, timeZone: _, service: __, ...declaredOptions } = guard.options;
  const declared = readSchedule(found.method);
  checkSchedule(found, declared);
  const key = givenKey ?? declaredName(found, declared) ?? defaultKey(found);
  const declaredJob = { key, location, schedule: declared, options: declaredOptions };
  const { schedule, options, isDisabled } = overrides.apply(declaredJob);
  const methodTimers = scheduler.timersOf(instance, name);
  if (schedule.cron && schedule.cron !== declared.cron) methodTimers.replaceCron(schedule.cron);
  const timers = isTest ? undefined : methodTimers;
  const source = schedule.cron === declared.cron ? '' : ` with jobs['${key}'] of the module`;
  const readPlan = createPlanReader(schedule, location + source);
  return {
    key,
    get plan() {
      return readPlan(timers?.cronTime);
    },
    get schedule() {
      return describeSchedule(schedule, timers?.cronTime, options.deployKey);
    },
    options,
    isDisabled,
    isFiring: () => {
      if (isDisabled) return false;
      return timers ? timers.isFiring() : schedule.cron?.disabled !== true;
    },
    invoke: () => instance[name]?.(),
    onError: logJobError,
  };
}

/** Nest's `mixin()` gives a class a random name, which differs from replica to replica. */
const RANDOM_NAME = /^[0-9a-f]{21}$/;

function defaultKey({ instance, name, location }: GuardedMethod): string {
  const { name: className } = instance.constructor;
  if (className !== '' && !RANDOM_NAME.test(className)) return `${className}.${name}`;
  throw new LockConfigError(
    `${location}: expected a key, as the name of the class ${className === '' ? 'is empty' : 'is a random one of mixin()'}. ` +
      `Without a key, each replica would run each tick. Give one that is the same in all replicas and differs from class to ` +
      `class: @SingletonCron(…, { key: 'sync:eu' }).`,
  );
}

const multipleInstancesWarning = (key: string, { instance, name }: GuardedMethod) =>
  `The job '${key}' is provided by several instances of ${instance.constructor.name}. Each tick runs on one of them only, at ` +
  `random. If they are configured differently, as by a dynamic module that is imported twice, guard ${name}() of each with ` +
  `CronRuns.guard() and a key of its own. Otherwise provide the class once.`;

/** Returns the plan of a job whose `CronJob` has this time. */
type PlanReader = (cronTime: CronTime | undefined) => Plan | undefined;

function createPlanReader({ cron, interval }: MethodSchedule, location: string): PlanReader {
  if (cron) {
    const plan = new ReschedulablePlan(cron, location);
    return (cronTime) => plan.getPlan(cronTime);
  }
  const plan = interval && createIntervalPlan(interval.timeout);
  return () => plan;
}

function describeSchedule(
  { cron, interval }: MethodSchedule,
  cronTime: CronTime | undefined,
  deployKey = '',
): JobSchedule {
  if (cron) return describeCron(cronTime ? readCronTime(cronTime) : cron);
  return interval ? describeInterval(interval.timeout) : describeDeployment(deployKey);
}
