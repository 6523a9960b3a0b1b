import { LockConfigError } from '../../core/errors.js';
import { OptionErrors } from '../../core/option-errors.js';
import type { JobOptions } from '../job.js';
import { JOB_OPTION_NAMES, collectJobErrors } from '../singleton-cron.options.js';
import type { MethodSchedule } from './nest-scheduler.js';

/** The options of a job in `jobs` of the module. They take precedence over those of its decorators. */
export interface JobOverride extends Omit<JobOptions, 'deployKey'> {
  /** The cron expression of the job, in place of the one in `@SingletonCron` or `@Cron`. */
  readonly cronTime?: string | undefined;
  /** The time zone of the expression, in place of the one in the decorator. */
  readonly timeZone?: string | undefined;
  /**
   * Whether this process leaves the job to others: its scheduler does not fire it.
   *
   * @default what `@Cron` says, else false
   */
  readonly disabled?: boolean | undefined;
}

const OVERRIDE_NAMES = ['cronTime', 'timeZone', 'disabled', ...JOB_OPTION_NAMES];

/** Checks what can be checked before the jobs are known. */
export function collectOverrideErrors(errors: OptionErrors, jobs: unknown): void {
  if (jobs === undefined) return;
  if (typeof jobs !== 'object' || jobs === null || Array.isArray(jobs)) {
    errors.add(
      "expected jobs to be an object with the keys of jobs, such as { nightly: { cronTime: '0 3 * * *' } }",
    );
    return;
  }
  for (const [key, given] of Object.entries(jobs)) {
    const path = `jobs['${key}']`;
    const override = errors.object(path, given, OVERRIDE_NAMES);
    errors.text(`${path}.cronTime`, override.cronTime, { max: 255 });
    errors.text(`${path}.timeZone`, override.timeZone, { max: 64 });
    errors.boolean(`${path}.disabled`, override.disabled);
  }
}

/** A job as its decorators declare it. */
interface DeclaredJob {
  readonly key: string;
  readonly location: string;
  readonly schedule: MethodSchedule;
  readonly options: JobOptions;
}

/** A job with the options of the module. */
interface OverriddenJob extends Pick<DeclaredJob, 'schedule' | 'options'> {
  /** An interval or timeout that must not run here. A cron job that is disabled has no active timer instead. */
  readonly isDisabled: boolean;
}

/** The options of jobs in the options of the module. */
export class JobOverrides {
  readonly #overrides: ReadonlyMap<string, JobOverride>;
  readonly #unused: Set<string>;

  constructor(jobs: Readonly<Record<string, JobOverride>> = {}) {
    this.#overrides = new Map(Object.entries(jobs));
    this.#unused = new Set(this.#overrides.keys());
  }

  /** @throws LockConfigError for an override that cannot work */
  apply({ key, location, schedule, options }: DeclaredJob): OverriddenJob {
    const { cronTime, timeZone, disabled, ...others } = withoutUndefined(this.#overrides.get(key));
    this.#unused.delete(key);
    const errors = new OptionErrors();
    const merged: JobOptions = { ...withoutSwitchedOff(options, others), ...others };
    collectJobErrors(errors, merged);
    if (!schedule.cron && cronTime !== undefined)
      errors.add('expected no cronTime, as the job has no cron expression');
    if (!schedule.cron && timeZone !== undefined)
      errors.add('expected no timeZone, as the job has no cron expression');
    errors.throwIfAny(`${location}: wrong options in jobs['${key}'] of the module`);
    const { cron } = schedule;
    if (!cron) return { schedule, options: merged, isDisabled: disabled === true };
    const isOverridden = [cronTime, timeZone, disabled].some((value) => value !== undefined);
    if (!isOverridden) return { schedule, options: merged, isDisabled: false };
    const overridden = { ...cron, ...withoutUndefined({ cronTime, timeZone, disabled }) };
    // The time zone of the module is in place of the whole offset of the decorator.
    if (timeZone !== undefined) delete (overridden as { utcOffset?: number }).utcOffset;
    return { schedule: { ...schedule, cron: overridden }, options: merged, isDisabled: false };
  }

  /** @throws LockConfigError if an entry names no job */
  throwIfUnused(keys: readonly string[]): void {
    if (this.#unused.size === 0) return;
    const names = [...this.#unused].map((key) => `'${key}'`).join(', ');
    const known = keys.length === 0 ? 'it has none' : `it has ${keys.map((key) => `'${key}'`).join(', ')}`;
    throw new LockConfigError(
      `DistributedLockModule: expected jobs to name jobs with @SingletonCron of this module, got ${names}, but ${known}. ` +
        `The name is the key of the job. For a job of CronRuns.guard(), pass the options to guard().`,
    );
  }
}

/** Without the options of the decorator that need what the entry switches off. */
function withoutSwitchedOff(declared: JobOptions, { onDeadRun, onMissed }: JobOverride): JobOptions {
  const kept = { ...declared };
  if (onDeadRun === 'skip') delete kept.maxAttempts;
  if (onMissed === 'skip') delete kept.missedWithinMs;
  return kept;
}

type Defined<T> = { readonly [Field in keyof T]?: Exclude<T[Field], undefined> };

const withoutUndefined = <T extends object>(fields: T | undefined): Defined<T> =>
  Object.fromEntries(Object.entries(fields ?? {}).filter(([, value]) => value !== undefined)) as Defined<T>;
