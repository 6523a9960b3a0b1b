import type { Plan } from './plan/plan.js';
import type { SingletonCronOptions } from './singleton-cron.options.js';
import type { Tick } from './plan/tick-calculator.js';

/** What a job was asked to be, as far as it matters once it is scheduled. */
export type JobOptions = Omit<SingletonCronOptions, 'key' | 'timeZone' | 'service'>;

export interface Job {
  /** What names it in the cluster. */
  readonly key: string;
  /** As it is now; `undefined` for what runs once for each deploy. */
  readonly plan: Plan | undefined;
  readonly options: JobOptions;
  /** Whether the scheduler of this process fires it now. Where it does not, nothing is caught up with or taken over. */
  isFiring(): boolean;
  /** Runs it as its timer would, through all that other decorators have put around it. */
  readonly invoke: () => unknown;
  /** Told how a run of ours went wrong, where no scheduler hears of it. */
  readonly onError: (error: unknown) => void;
}

export const retriesDeadRuns = ({ options: { onDeadRun } }: Job) => onDeadRun === 'retry';

export const runsMissedTicks = ({ options: { onMissed } }: Job) => onMissed === 'once';

/** For which tick a timer fired. */
export interface TickSource {
  calculateTick(firedAtMs: number): Tick | undefined;
}

/** What runs once for each deploy has one tick, whenever it comes. */
export const onceForEachDeploy: TickSource = {
  calculateTick: (firedAtMs) => ({ tickMs: firedAtMs, periodMs: Infinity }),
};
