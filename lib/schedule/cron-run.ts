/** What a method under `@SingletonCron` receives. As JSON, the fencing token is a text and the signal is left out. */
export interface CronRun {
  /** The planned instant that this run stands for, whenever it began. */
  readonly tick: Date;
  /** 1 for the first run of the tick; more if earlier ones died, with `onDeadRun: 'retry'`. */
  readonly attempt: number;
  /** Grows from run to run of the job; with `overlap: 'allow'`, from attempt to attempt of the tick. */
  readonly fencingToken: bigint;
  /** Aborts when the run is no longer the only one, or the application ends. */
  readonly signal: AbortSignal;
}
