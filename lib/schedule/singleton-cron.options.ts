import { OptionErrors } from '../core/option-errors.js';
import { MIN_LEASE_MS } from '../core/options.js';

export interface SingletonCronOptions {
  /**
   * The name of the job in the cluster. It must be the same in every replica and different from that of any other job.
   *
   * @default the name given to `@Cron`, else `Class.method`
   */
  key?: string;
  /** The time zone of an expression in `@SingletonCron`. With `@Cron`, set its own `timeZone` instead. */
  timeZone?: string;
  /**
   * What happens to a tick at which all replicas, or the store, were down. `once` runs the newest such tick when they
   * are back. A job that is new to the store has no missed ticks.
   *
   * @default 'skip'
   */
  onMissed?: 'skip' | 'once';
  /**
   * Missed ticks older than this, in ms by the store's clock, are skipped.
   *
   * @default the period of the job
   */
  missedWithinMs?: number;
  /**
   * What happens to a tick whose replica died during the run. With `retry`, another replica runs it again when the
   * lease has ended, with a larger fencing token and the next `attempt`. A run that threw is not retried, unless
   * shutdown had aborted its signal.
   *
   * @default 'skip'
   */
  onDeadRun?: 'skip' | 'retry';
  /**
   * The maximum number of runs of one tick with `onDeadRun: 'retry'`, from 2 to 100.
   *
   * @default 3
   */
  maxAttempts?: number;
  /**
   * Whether a tick runs while the run of an earlier tick is in progress. With `allow`, you cannot compare the fencing
   * tokens of two ticks.
   *
   * @default 'forbid'
   */
  overlap?: 'forbid' | 'allow';
  /**
   * Delays the start of each run by up to this many ms. The delay differs from tick to tick and from job to job, but is
   * the same in all replicas. It is at most 80 % of the time until the next tick. Otherwise the next tick could be
   * claimed first.
   *
   * @default 0
   */
  jitterMs?: number;
  /**
   * How long before its time, by the store's clock, a tick may be claimed by a replica whose clock is ahead.
   *
   * @default a tenth of the period, at most 500
   */
  maxEarlyMs?: number;
  /**
   * How long after its time, by the store's clock, a tick may still be claimed, and how long after the end of its lease a dead
   * run may be taken over.
   *
   * @default ten periods, at least a minute and at most a day; with `retry` at least three leases
   */
  staleAfterMs?: number;
  /**
   * Guards a `@Timeout`, which then runs once in the cluster for each value. Use, for example, the version of the
   * application. Not together with `leader`.
   */
  deployKey?: string;
  /**
   * How long the lock of a run lasts without a renewal, in ms. If its replica dies, later ticks are skipped until this
   * time is over.
   *
   * @default the module's `defaults.leaseMs`
   */
  leaseMs?: number;
  /**
   * The longest time that a run may take, in ms. Then its signal aborts with an error of the name `TimeoutError`, and
   * its outcome is `timed-out`. If it does not end within a further `leaseMs`, the next tick runs, although the method
   * may still be running. A run that timed out is not retried.
   *
   * @default no limit
   */
  maxRunMs?: number;
  /**
   * Runs the job only on the leader of this election, and joins the election. If no process leads at a tick, the tick
   * is skipped, unless `onMissed: 'once'` lets the next leader run it.
   */
  leader?: string;
  /** The name of the module whose backend is used. */
  service?: string;
}

/** Options without a meaning for a guarded `@Timeout`. */
const SCHEDULE_OPTION_NAMES = [
  ...(['onMissed', 'missedWithinMs', 'overlap'] as const),
  ...(['jitterMs', 'maxEarlyMs', 'staleAfterMs'] as const),
];

/** The options that `@SingletonCron` and `CronRuns.guard()` have in common. */
export const JOB_OPTION_NAMES = [
  ...SCHEDULE_OPTION_NAMES,
  'onDeadRun',
  'maxAttempts',
  'leaseMs',
  'maxRunMs',
  'leader',
];

const MAX_ATTEMPTS = 100;

/** @throws LockConfigError */
export function checkSingletonCronOptions(given: unknown, location: string): void {
  const errors = new OptionErrors();
  const options: SingletonCronOptions = errors.object('options', given, [
    ...JOB_OPTION_NAMES,
    ...['key', 'timeZone', 'deployKey', 'service'],
  ]);
  errors.text('options.key', options.key, { max: 255 });
  errors.text('options.timeZone', options.timeZone, { max: 64 });
  errors.text('options.service', options.service, { max: 64 });
  collectJobErrors(errors, options);
  errors.throwIfAny(location);
}

/** Checks the options that `@SingletonCron` and jobs created at run time have in common. */
export function collectJobErrors(errors: OptionErrors, options: SingletonCronOptions): void {
  const { maxAttempts, onDeadRun, onMissed, missedWithinMs, jitterMs, staleAfterMs } = options;
  errors.oneOf('options.onMissed', onMissed, ['skip', 'once']);
  errors.oneOf('options.onDeadRun', onDeadRun, ['skip', 'retry']);
  errors.oneOf('options.overlap', options.overlap, ['forbid', 'allow']);
  errors.integerMs('options.leaseMs', options.leaseMs, { min: MIN_LEASE_MS });
  errors.integerMs('options.maxRunMs', options.maxRunMs, { min: 1 });
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
  for (const name of SCHEDULE_OPTION_NAMES) {
    if (options[name] !== undefined) errors.add(`expected no ${name} beside deployKey`);
  }
  if (options.leader !== undefined)
    errors.add(
      'expected no leader beside deployKey, as a @Timeout fires once, often before its process leads',
    );
}
