/** The time for which one process is leader. In JSON, its number is a string, and the signal is omitted. */
export interface LeaderTerm {
  /** The fencing token, which grows with each term. Store it with what the leader writes, and reject writes with an older one. */
  readonly number: bigint;
  /**
   * Aborts when the term ends: with `LockLostError` if the lease was lost or the term was resigned, with `LockShutdownError` as
   * soon as the application begins to shut down.
   */
  readonly signal: AbortSignal;
}

/** The current leader, as read from the store. In JSON, the term is a string. */
export interface LeaderInfo {
  /** The process that leads: `instance` in the options of its lock module. */
  readonly instance: string;
  /** When its term began, by the store's clock. */
  readonly since: Date;
  readonly term: bigint;
  /** The time in ms until its lease ends, if it is not renewed. */
  readonly remainingMs: number;
}

/** This process as a candidate of an election. */
export interface Candidate {
  /**
   * Whether this process leads. `true` in at most one process at a time. It reads the clock at each call, so it is
   * correct even right after this process was suspended.
   */
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
   * Ends the current term. The process stays a candidate, behind the others. Settles when the work of the term has
   * ended and the leadership is released, or when the library gives up waiting for that work and lets the lease expire.
   * If that work itself calls `resign`, it settles at once.
   */
  resign(): Promise<void>;
  /**
   * Resigns and leaves the election for good: after this, `join` returns another candidate. Pass a lease again that `join` had
   * set. Settles like
   * {@link resign}.
   */
  leave(): Promise<void>;
}
