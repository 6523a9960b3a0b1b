import { LockConfigError } from '../core/errors.js';
import { Faults } from '../core/faults.js';
import { SHORTEST_LEASE_MS } from '../core/options.js';

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
   * What becomes of a tick over which all replicas were down. This version refuses anything but the default.
   *
   * @default 'skip'
   */
  onMissed?: 'skip' | 'once';
  /**
   * What becomes of a tick whose replica died in the middle of the run. This version refuses anything but the default.
   *
   * @default 'skip'
   */
  onDeadRun?: 'skip' | 'retry';
  /**
   * Whether a tick runs while the run of an earlier one is on. This version refuses anything but the default.
   *
   * @default 'forbid'
   */
  overlap?: 'forbid' | 'allow';
  /**
   * How long a run that is not renewed counts as on, in ms: if its replica dies, later ticks are skipped for so long.
   *
   * @default the module's `defaults.leaseMs`
   */
  leaseMs?: number;
  /** Run on the leader of this election only. This version refuses it. */
  leader?: string;
  /** The name of the module whose backend to use. */
  service?: string;
}

const KNOWN = [
  'key',
  'timeZone',
  'onMissed',
  'onDeadRun',
  'overlap',
  'leaseMs',
  'leader',
  'service',
] as const;

const NOT_YET = { onMissed: 'once', onDeadRun: 'retry', overlap: 'allow' } as const;

/** @throws LockConfigError */
export function checkSingletonCronOptions(options: SingletonCronOptions, place: string): void {
  const faults = new Faults();
  faults.object('options', options, KNOWN);
  faults.text('options.key', options.key, { max: 255 });
  faults.text('options.timeZone', options.timeZone, { max: 64 });
  faults.text('options.service', options.service, { max: 64 });
  faults.oneOf('options.onMissed', options.onMissed, ['skip', 'once']);
  faults.oneOf('options.onDeadRun', options.onDeadRun, ['skip', 'retry']);
  faults.oneOf('options.overlap', options.overlap, ['forbid', 'allow']);
  faults.wholeMs('options.leaseMs', options.leaseMs, { min: SHORTEST_LEASE_MS });
  faults.throwIfAny(place);

  for (const [name, value] of Object.entries(NOT_YET)) {
    if (options[name as keyof typeof NOT_YET] === value) throw notYet(place, `${name}: '${value}'`);
  }
  if (options.leader !== undefined) throw notYet(place, 'leader');
}

const notYet = (place: string, option: string) =>
  new LockConfigError(
    `${place}: ${option} is not supported by this version. Leave it out to get the default.`,
  );
