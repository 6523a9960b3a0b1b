/** The argument of a method with `@SingletonCron`. As JSON, the fencing token is a text and the signal is left out. */
export interface CronRun {
  /** The planned instant of this run. The run itself may begin later. */
  readonly tick: Date;
  /** 1 for the first run of the tick; with `onDeadRun: 'retry'`, 2 after the first run died, and so on. */
  readonly attempt: number;
  /** Grows with each run of the job; with `overlap: 'allow'`, only with each attempt of the same tick. */
  readonly fencingToken: bigint;
  /** Aborts when the lease of the run is lost, so that another replica may run, or when shutdown has waited `drainMs`. */
  readonly signal: AbortSignal;
}
