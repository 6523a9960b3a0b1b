/** A held lock. `await using lock = await locks.acquire('k')` releases it at the end of the block. */
export interface Lock extends AsyncDisposable {
  readonly key: string;
  /**
   * Grows with every grant of the key. Store it with the data you write, and reject a write whose token is older than
   * the newest stored one. That keeps data safe from a holder that slept through its lease.
   *
   * @see Martin Kleppmann, "How to do distributed locking"
   */
  readonly fencingToken: bigint;
  /**
   * Aborts with `LockLostError` when the lease expires or another process has the lock, and with `LockShutdownError`
   * when the application ends before the work. It aborts late if the event loop is blocked: before a step that must not
   * happen twice, call {@link isValid}.
   */
  readonly signal: AbortSignal;
  /**
   * Whether the lock is still held. Reads the clock, not a flag, so it is exact even right after this process was
   * stopped. After the machine slept or its clock was set by a second or more, it returns `false` until the store has
   * confirmed the lock. The store is asked at once.
   */
  isValid(): boolean;
  /** The rest of the lease in ms on which this process can rely; 0 once it is over. */
  remainingMs(): number;
  /** @throws LockLostError unless {@link isValid} */
  throwIfLost(): void;
  /**
   * Extends the lease: afterwards it lasts at least `leaseMs` from now. After a step of the wall clock it first asks
   * the store whether the lock is still held.
   *
   * @throws LockLostError if the lock was lost or released
   * @throws LockUnavailableError if the store did not answer
   * @throws LockConfigError for a lease that the backend cannot keep
   */
  extend(leaseMs: number): Promise<void>;
  /**
   * Releases the lock. Returns `false` if it was no longer held. Safe to call twice. In a `finally` block its error
   * would hide the error of the work; `await using` and `withLock` avoid that.
   *
   * @throws LockUnavailableError if the store did not answer; the release is then retried in the background until the
   *   lease would have ended
   * @throws LockShutdownError if the application has ended; the lease then expires
   */
  release(): Promise<boolean>;
}
