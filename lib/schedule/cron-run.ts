/** What a method under `@SingletonCron` receives. */
export interface CronRun {
  /** The planned instant that this run stands for, whenever it began. */
  readonly tick: Date;
  /** 1 for the first run of the tick. */
  readonly attempt: number;
  /** Grows from run to run of the job. */
  readonly fencingToken: bigint;
  /** Aborts when the run is no longer the only one, or the application ends. */
  readonly signal: AbortSignal;
}
