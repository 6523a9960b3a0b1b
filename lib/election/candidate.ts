/** One leadership. As JSON, its number is a text and the signal is left out. */
export interface LeaderTerm {
  /** Grows from term to term: the fencing token. Store it with what the leader writes, and refuse what is older. */
  readonly number: bigint;
  /**
   * Aborts when the term is over: with `LockLostError` at the end of the lease or when it was resigned, with
   * `LockShutdownError` as soon as the application begins to shut down.
   */
  readonly signal: AbortSignal;
}

/** Who leads, as the store knows it. As JSON, the term is a text. */
export interface LeaderInfo {
  /** The instance that leads, as named in its module's options. */
  readonly instance: string;
  /** Since when, by the store's clock. */
  readonly since: Date;
  readonly term: bigint;
  /** What is left of its lease, unless it is renewed. */
  readonly remainingMs: number;
}

/** The part that this process takes in an election. */
export interface Candidate {
  /** Reads the clock, not a flag: exact even if this process was stopped. True in one process at a time. */
  isLeader(): boolean;
  /** The present term, while {@link isLeader}. */
  term(): LeaderTerm | null;
  /**
   * Who leads now, perhaps another process; `null` if nobody does. Old news once it arrives.
   *
   * @throws LockUnavailableError when the store cannot be asked, LockShutdownError when the application is shutting down
   */
  leader(): Promise<LeaderInfo | null>;
  /**
   * Gives up the present term and stands in line again, at its end. Settles once the leadership was given back, or is
   * left to lapse because the work of the term did not end; at once if that very work calls it.
   */
  resign(): Promise<void>;
  /** Resigns and stands no more, until somebody joins again. */
  leave(): Promise<void>;
}
