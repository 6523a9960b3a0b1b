import { OptionErrors } from '../core/option-errors.js';
import { MIN_LEASE_MS } from '../core/options.js';

export interface SingletonCronOptions {
  /**
   * What names the job in the cluster: the same in every replica, and in no other job.
   *
   * @default the name given to `@Cron`, else `Class.method`
   */
  key?: string;
  /** The time zone of the expression given to `@SingletonCron` itself. */
  timeZone?: string;
  /**
   * What becomes of a tick over which all replicas, or the store, were down. `once` runs the newest such tick when they
   * are back. The first registration of a job never runs it by itself.
   *
   * @default 'skip'
   */
  onMissed?: 'skip' | 'once';
  /**
   * A missed tick that is older, in ms by the store's clock, is skipped.
   *
   * @default the period of the job
   */
  missedWithinMs?: number;
  /**
   * What becomes of a tick whose replica died in the middle of the run. `retry` gives it to another one when the lease
   * is over, with a larger fencing token and the next `attempt`. A run that threw has ended, unless it threw because the
   * application was shutting down.
   *
   * @default 'skip'
   */
  onDeadRun?: 'skip' | 'retry';
  /**
   * How often a tick is given out at most, with `onDeadRun: 'retry'`.
   *
   * @default 3
   */
  maxAttempts?: number;
  /**
   * Whether a tick runs while the run of an earlier one is on. With `allow` fencing tokens grow within a tick only.
   *
   * @default 'forbid'
   */
  overlap?: 'forbid' | 'allow';
  /**
   * Start up to so many ms after the tick: always the same for one tick, and another time for each tick and job. At most
   * 80 % of the time until the next tick, which would overtake it otherwise.
   *
   * @default 0
   */
  jitterMs?: number;
  /**
   * How long before the tick, by the store's clock, it may be claimed by a replica whose clock is ahead.
   *
   * @default a tenth of the period, at most 500
   */
  maxEarlyMs?: number;
  /**
   * How long after the tick, by the store's clock, it may still be claimed; and how long after its end a dead run may be
   * taken over.
   *
   * @default ten periods, at least a minute and at most a day; with `retry` at least three leases
   */
  staleAfterMs?: number;
  /**
   * What names the deploy, such as a version. Guards a `@Timeout`: it runs once in the cluster for each value.
   */
  deployKey?: string;
  /**
   * How long a run that is not renewed counts as on, in ms: if its replica dies, later ticks are skipped for so long.
   *
   * @default the module's `defaults.leaseMs`
   */
  leaseMs?: number;
  /**
   * Run on the leader of this election only; this process joins it. A tick at which nobody leads is skipped, unless
   * `onMissed: 'once'` lets the next leader run it.
   */
  leader?: string;
  /** The name of the module whose backend to use. */
  service?: string;
}

/** What a job may be, however it is made. */
export const JOB_OPTION_NAMES = [
  'onMissed',
  'missedWithinMs',
  'onDeadRun',
  'maxAttempts',
  'overlap',
  'jitterMs',
  'maxEarlyMs',
  'staleAfterMs',
  'leaseMs',
  'leader',
] as const;

const OPTION_NAMES = [...JOB_OPTION_NAMES, 'key', 'timeZone', 'deployKey', 'service'] as const;

const MAX_ATTEMPTS = 100;

/** What a guarded `@Timeout` has no use for. */
const SCHEDULE_ONLY_OPTIONS = [
  'onMissed',
  'missedWithinMs',
  'overlap',
  'jitterMs',
  'maxEarlyMs',
  'staleAfterMs',
] as const;

/** @throws LockConfigError */
export function checkSingletonCronOptions(given: unknown, location: string): void {
  const errors = new OptionErrors();
  const options: SingletonCronOptions = errors.object('options', given, OPTION_NAMES);
  errors.text('options.key', options.key, { max: 255 });
  errors.text('options.timeZone', options.timeZone, { max: 64 });
  errors.text('options.service', options.service, { max: 64 });
  collectJobErrors(errors, options);
  errors.throwIfAny(location);
}

/** Looks over what `@SingletonCron` and jobs that are made at run time have in common. */
export function collectJobErrors(errors: OptionErrors, options: SingletonCronOptions): void {
  const { maxAttempts, onDeadRun, onMissed, missedWithinMs, jitterMs, staleAfterMs } = options;
  errors.oneOf('options.onMissed', onMissed, ['skip', 'once']);
  errors.oneOf('options.onDeadRun', onDeadRun, ['skip', 'retry']);
  errors.oneOf('options.overlap', options.overlap, ['forbid', 'allow']);
  errors.integerMs('options.leaseMs', options.leaseMs, { min: MIN_LEASE_MS });
  errors.integerMs('options.missedWithinMs', missedWithinMs, { min: 1 });
  errors.integerMs('options.jitterMs', jitterMs, { min: 0 });
  errors.integerMs('options.maxEarlyMs', options.maxEarlyMs, { min: 0 });
  errors.integerMs('options.staleAfterMs', staleAfterMs, { min: 1 });
  errors.text('options.deployKey', options.deployKey, { max: 64 });
  errors.text('options.leader', options.leader, { max: 255 });
  const isCount =
    Number.isInteger(maxAttempts) && (maxAttempts as number) >= 2 && (maxAttempts as number) <= MAX_ATTEMPTS;
  errors.expect('options.maxAttempts', maxAttempts, `a whole number from 2 to ${MAX_ATTEMPTS}`, isCount);
  if (maxAttempts !== undefined && onDeadRun !== 'retry')
    errors.add(`expected onDeadRun: 'retry' beside maxAttempts`);
  if (missedWithinMs !== undefined && onMissed !== 'once')
    errors.add(`expected onMissed: 'once' beside missedWithinMs`);
  if (jitterMs !== undefined && staleAfterMs !== undefined && jitterMs >= staleAfterMs)
    errors.add('expected jitterMs to be less than staleAfterMs');
  if (options.deployKey === undefined) return;
  for (const name of SCHEDULE_ONLY_OPTIONS) {
    if (options[name] !== undefined) errors.add(`expected no ${name} beside deployKey`);
  }
}
