import type { SchedulerRegistry } from '@nestjs/schedule';
import type { CronJob, CronTime } from 'cron';
import { type CronSchedule, isRescheduled } from '../plan/plan.js';

export type TimerKind = 'cronJobs' | 'intervals' | 'timeouts';

/** Creates the timers of decorated methods. `@nestjs/schedule` does not export it; the same in versions 6 to 12. */
export interface Orchestrator {
  readonly schedulerRegistry: SchedulerRegistry;
  /** Timers by their name in the registry, in the order in which their methods were found. */
  readonly cronJobs: Readonly<Record<string, { options: object }>>;
  readonly intervals: Readonly<Record<string, { readonly timeout: number }>>;
  readonly timeouts: Readonly<Record<string, { readonly timeout: number }>>;
}

/** The property of replaced cron options with those of the decorator. Also other copies of this package replace options. */
const DECLARED = Symbol.for('nestjs-distributed-lock:declared-cron-options');

/** The options of a cron job as its decorator declares them, or the milliseconds of another timer. */
export function declaredSchedule(orchestrator: Orchestrator, kind: TimerKind, name: string): unknown {
  if (kind !== 'cronJobs') return orchestrator[kind][name]?.timeout;
  const options = orchestrator.cronJobs[name]?.options as { readonly [DECLARED]?: object } | undefined;
  return options?.[DECLARED] ?? options;
}

interface MethodTimer {
  readonly orchestrator: Orchestrator;
  readonly name: string;
}

/** The timers of one method. They may be stopped, started, deleted and rescheduled at run time. */
export class MethodTimers {
  readonly #kind: TimerKind;
  readonly #timers: readonly MethodTimer[];

  /** @param timers One for each `ScheduleModule`, and for each token under which the instance is provided. */
  constructor(kind: TimerKind, timers: readonly MethodTimer[]) {
    this.#kind = kind;
    this.#timers = timers;
  }

  /** Whether this process has an active timer for the method. */
  isFiring(): boolean {
    if (this.#kind === 'cronJobs') return this.#cronTimers.some(({ cronJob }) => isStarted(cronJob));
    const type = this.#kind === 'intervals' ? 'interval' : 'timeout';
    return this.#timers.some(({ orchestrator, name }) =>
      orchestrator.schedulerRegistry.doesExist(type, name),
    );
  }

  /**
   * The current times of a cron job, which `setTime()` may have changed; `undefined` if it is not in the registry. With several
   * `ScheduleModule`s the method has several timers, of which the application has rescheduled one.
   */
  get cronTime(): CronTime | undefined {
    const timers = this.#cronTimers;
    const started = timers.filter(({ cronJob }) => isStarted(cronJob));
    const candidates = started.length === 0 ? timers : started;
    const rescheduled =
      candidates.length > 1
        ? candidates.find(({ cronJob, options }) => options && isRescheduled(cronJob.cronTime, options))
        : undefined;
    return (rescheduled ?? candidates[0])?.cronJob.cronTime;
  }

  /**
   * Replaces the options of a cron job. Call it before the application has booted: `@nestjs/schedule` then creates the
   * timer.
   */
  replaceCron(options: object): void {
    for (const { orchestrator, name } of this.#timers) {
      const cronJob = orchestrator.cronJobs[name];
      const declared = declaredSchedule(orchestrator, 'cronJobs', name);
      if (cronJob) cronJob.options = { ...options, [DECLARED]: declared };
    }
  }

  /** Timers in the registry, with the options of the decorator, from which the scheduler usually has created them. */
  get #cronTimers() {
    return this.#timers.flatMap(({ orchestrator, name }) => {
      const cronJob = orchestrator.schedulerRegistry.getCronJobs().get(name);
      const options = orchestrator.cronJobs[name]?.options as CronSchedule | undefined;
      return cronJob ? { cronJob, options } : [];
    });
  }
}

/** A job for a single date is inactive after it has fired, although nothing has stopped it. */
const isStarted = (job: CronJob): boolean => job.isActive || hasFiredSingleDate(job);

function hasFiredSingleDate({ cronTime, lastExecution }: CronJob): boolean {
  const dateMs = cronTime.realDate ? Number(cronTime.source) : Infinity;
  return lastExecution !== null && lastExecution.getTime() >= dateMs - EARLY_TOLERANCE_MS;
}

/** Timers may fire a little early. */
const EARLY_TOLERANCE_MS = 1_000;
