/** A lock in the hand. `await using lock = await locks.acquire('k')` gives it back at the end of the block. */
export interface Lock extends AsyncDisposable {
  readonly key: string;
  /**
   * Grows with every grant of the key. Store it with what you write, and refuse a write whose token is older than
   * the newest stored one: that is what keeps data safe from a holder that slept through its lease.
   *
   * @see Martin Kleppmann, "How to do distributed locking"
   */
  readonly fencingToken: bigint;
  /**
   * Aborts with `LockLostError` when the lease is over or known to be somebody else's, and with `LockShutdownError`
   * when the application ends and the work did not. Late if the event loop is blocked: before a step that must not
   * happen twice, ask {@link isValid}.
   */
  readonly signal: AbortSignal;
  /**
   * Reads the clock, not a flag: exact even if this process was stopped, and before any timer ran. After the machine slept or
   * its clock was set by a second or more, `false` until the store has confirmed the lock. The store is asked at once.
   */
  isValid(): boolean;
  /** What is left of the lease as far as we know for certain; 0 once it is over. */
  remainingMs(): number;
  /** @throws LockLostError unless {@link isValid} */
  throwIfLost(): void;
  /**
   * Prolongs the lease by hand: afterwards it lasts at least `leaseMs` from now. After a step of the wall clock it first
   * asks the store whether the lock is still ours.
   *
   * @throws LockLostError if it is no longer ours, LockUnavailableError if the store did not answer, LockConfigError for a
   *   lease that the backend cannot keep
   */
  extend(leaseMs: number): Promise<void>;
  /**
   * Gives the lock back. `false`: there was nothing left to give back. Safe to call twice. In a `finally` its error would hide
   * how the work ended, which `await using` and `withLock` never do.
   *
   * @throws LockUnavailableError if the store did not answer; it is then retried in the background until the lease
   *   would have ended
   * @throws LockShutdownError if the application has ended; the lease then lapses by itself
   */
  release(): Promise<boolean>;
}
