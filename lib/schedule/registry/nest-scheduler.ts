import type { DiscoveryService } from '@nestjs/core';
import type { SchedulerRegistry } from '@nestjs/schedule';
import type { CronJob, CronTime } from 'cron';
import type { Method } from '../../decorators/decorated-method.js';
import type { CronSchedule } from '../plan/plan.js';

/** The metadata keys of the decorators of `@nestjs/schedule`. The package does not export them; the same since version 1. */
const CRON = 'SCHEDULE_CRON_OPTIONS';
const INTERVAL = 'SCHEDULE_INTERVAL_OPTIONS';
const TIMEOUT = 'SCHEDULE_TIMEOUT_OPTIONS';
const NAME = 'SCHEDULER_NAME';

/** The metadata that the decorators of `@nestjs/schedule` have stored on a method. */
export type MethodSchedule = ReturnType<typeof readSchedule>;

export const readSchedule = (method: Method) => ({
  cron: Reflect.getMetadata(CRON, method) as (CronSchedule & { readonly disabled?: boolean }) | undefined,
  interval: Reflect.getMetadata(INTERVAL, method) as TimerMetadata | undefined,
  timeout: Reflect.getMetadata(TIMEOUT, method) as TimerMetadata | undefined,
  name: Reflect.getMetadata(NAME, method) as string | undefined,
});

export function isScheduled(method: Method): boolean {
  const { cron, interval, timeout } = readSchedule(method);
  return (cron ?? interval ?? timeout) !== undefined;
}

interface TimerMetadata {
  readonly timeout: number;
}

/** Creates the timers of decorated methods. `@nestjs/schedule` does not export it; the same in versions 6 to 12. */
interface Orchestrator {
  readonly schedulerRegistry: SchedulerRegistry;
  /** Jobs by their name in the registry, which is random for a job without a name. */
  readonly cronJobs: Readonly<Record<string, { readonly options: object }>>;
  readonly intervals: Readonly<Record<string, TimerMetadata>>;
  readonly timeouts: Readonly<Record<string, TimerMetadata>>;
}

/** Reads the current state of Nest's scheduler. Jobs may be stopped, started, deleted and rescheduled at run time. */
export class NestScheduler {
  readonly #discovery: DiscoveryService;
  #orchestrators: readonly Orchestrator[] | undefined;

  constructor(discovery: DiscoveryService) {
    this.#discovery = discovery;
  }

  /** Whether this process has an active timer for the method. */
  isFiring(schedule: MethodSchedule): boolean {
    const { cron, interval, timeout, name } = schedule;
    if (cron) return this.#cronJobs(cron).some(isStarted);
    return this.#allOrchestrators.some(({ intervals, timeouts, schedulerRegistry: registry }) =>
      interval
        ? namesOf(intervals, interval, name).some((each) => registry.doesExist('interval', each))
        : timeout && namesOf(timeouts, timeout, name).some((each) => registry.doesExist('timeout', each)),
    );
  }

  /** The current times of the job, which `setTime()` may have changed; `undefined` if the job is not in the registry. */
  cronTimeOf({ cron }: MethodSchedule): CronTime | undefined {
    const jobs = cron ? this.#cronJobs(cron) : [];
    return (jobs.find(isStarted) ?? jobs[0])?.cronTime;
  }

  /** Returns several jobs if a class is provided twice, or if several classes inherit the method. */
  #cronJobs(cron: object): readonly CronJob[] {
    return this.#allOrchestrators.flatMap(({ cronJobs, schedulerRegistry }) => {
      const registered = schedulerRegistry.getCronJobs();
      return Object.keys(cronJobs).flatMap((name) =>
        cronJobs[name]?.options === cron ? (registered.get(name) ?? []) : [],
      );
    });
  }

  get #allOrchestrators(): readonly Orchestrator[] {
    this.#orchestrators ??= this.#discovery
      .getProviders()
      .map(({ instance }) => instance as unknown)
      .filter(isOrchestrator);
    return this.#orchestrators;
  }
}

const isOrchestrator = (value: unknown): value is Orchestrator =>
  typeof value === 'object' &&
  value !== null &&
  ['schedulerRegistry', 'cronJobs', 'intervals', 'timeouts'].every((name) => name in value);

/** Intervals and timeouts without a name can be distinguished by their time only. */
const namesOf = (
  all: Readonly<Record<string, TimerMetadata>>,
  { timeout }: TimerMetadata,
  name: string | undefined,
) => (name === undefined ? Object.keys(all).filter((each) => all[each]?.timeout === timeout) : [name]);

/** A job for a single date is inactive after it has fired, although nothing has stopped it. */
const isStarted = (job: CronJob): boolean => job.isActive || hasFiredSingleDate(job);

function hasFiredSingleDate({ cronTime, lastExecution }: CronJob): boolean {
  const dateMs = cronTime.realDate ? Number(cronTime.source) : Infinity;
  return lastExecution !== null && lastExecution.getTime() >= dateMs - EARLY_TOLERANCE_MS;
}

/** Timers may fire a little early. */
const EARLY_TOLERANCE_MS = 1_000;
