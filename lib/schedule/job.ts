import { Logger } from '@nestjs/common';
import type { Plan } from './plan/plan.js';
import type { JobSchedule } from './plan/schedule-text.js';
import type { SingletonCronOptions } from './singleton-cron.options.js';

/** The options that matter once the job is scheduled. */
export type JobOptions = Omit<SingletonCronOptions, 'key' | 'timeZone' | 'service'>;

/**
 * The argument of a method with `@SingletonCron`. In JSON, the fencing token is a string, and the signal is omitted.
 */
export interface CronRun {
  /** The planned time of this run, which may begin later. For a run of `CronRuns.runNow()`, the time of that call. */
  readonly tick: Date;
  /** 1 for the first run of the tick; with `onDeadRun: 'retry'`, 2 after the first run died, and so on. */
  readonly attempt: number;
  /** Grows with each run of the job; with `overlap: 'allow'`, only with each attempt of the same tick. */
  readonly fencingToken: bigint;
  /**
   * Aborts when the lease of the run is lost (another replica may then run the job), when shutdown has waited for
   * `drainMs`, or after `maxRunMs`.
   */
  readonly signal: AbortSignal;
}

/** A guarded method or function. */
export interface Job {
  /** Its name in the cluster. */
  readonly key: string;
  /** The current plan; `undefined` for a job that runs once for each deployment. */
  readonly plan: Plan | undefined;
  /** The current schedule, for people. */
  readonly schedule: JobSchedule;
  readonly options: JobOptions;
  /** Whether calls of its timer run nothing here. */
  readonly isDisabled?: boolean;
  /**
   * Whether the scheduler of this process has an active timer for the job. Without one, this process runs no missed ticks of
   * the job and takes over no dead runs.
   */
  isFiring(): boolean;
  /** Calls the job as its timer would, through all other decorators of the method. */
  readonly invoke: () => unknown;
  /** Receives errors of runs that no scheduler has started, and which nothing else would report. */
  readonly onError: (error: unknown) => void;
}

export type PlannedJob = Job & { readonly plan: Plan };

export const isPlanned = (job: Job): job is PlannedJob => job.plan !== undefined;

export const retriesDeadRuns = ({ options: { onDeadRun } }: Job) => onDeadRun === 'retry';

export const runsMissedTicks = ({ options: { onMissed } }: Job) => onMissed === 'once';

const schedulerLogger = new Logger('Scheduler');

/** Logs as `@nestjs/schedule` logs failed jobs. */
export const logJobError = (error: unknown): void => schedulerLogger.error(error);
