/** One leadership. As JSON, its number is a text and the signal is left out. */
export interface LeaderTerm {
  /** The fencing token, which grows with each term. Store it with what the leader writes, and reject writes with an older one. */
  readonly number: bigint;
  /**
   * Aborts when the term ends: with `LockLostError` if the lease was lost or the term was resigned, with `LockShutdownError` as
   * soon as the application begins to shut down.
   */
  readonly signal: AbortSignal;
}

/** The current leader according to the store. As JSON, the term is a text. */
export interface LeaderInfo {
  /** The instance that leads, as named in its module's options. */
  readonly instance: string;
  /** When its term began, by the store's clock. */
  readonly since: Date;
  readonly term: bigint;
  /** The time until its lease ends if it is not renewed. */
  readonly remainingMs: number;
}

/** This process as a candidate of an election. */
export interface Candidate {
  /** Reads the clock, so it is correct even right after this process was stopped. `true` in at most one process at a time. */
  isLeader(): boolean;
  /** Returns the current term while {@link isLeader} is `true`, otherwise `null`. */
  term(): LeaderTerm | null;
  /**
   * Returns the current leader, which may be another process; `null` if there is none. The result may be out of date when it
   * arrives.
   *
   * @throws LockUnavailableError if the store cannot be reached
   * @throws LockShutdownError if the application is shutting down
   */
  leader(): Promise<LeaderInfo | null>;
  /**
   * Ends the current term and campaigns again behind the other candidates. Settles when the leadership was released, or is left to
   * expire because the work of the term did not end. If that work itself calls `resign`, it settles at once.
   */
  resign(): Promise<void>;
  /** Resigns and leaves the election, until `join` is called again. Settles like {@link resign}. */
  leave(): Promise<void>;
}
