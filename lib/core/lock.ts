/** A held lock. `await using lock = await locks.acquire('k')` releases it at the end of the block. */
export interface Lock extends AsyncDisposable {
  /** The key; of a lock of several keys, all of them as one text for logs. */
  readonly key: string;
  /** The key, or all keys of a lock of several, in the order in which they were acquired. */
  readonly keys: readonly string[];
  /**
   * Grows with every grant of the key. Store it with the data you write, and reject a write whose token is older than
   * the newest stored one. So a holder that stalled for longer than its lease cannot overwrite newer data.
   *
   * @see Martin Kleppmann, "How to do distributed locking"
   * @throws LockConfigError for a lock of several keys, each of which has its own: see {@link fencingTokenOf}; for a
   *   lock with `mode: 'read'`, which has none
   */
  readonly fencingToken: bigint;
  /** Which of the permits of its key this is; 0 for a lock without permits. */
  readonly permit: number;
  /**
   * The fencing token of one of the {@link keys}.
   *
   * @throws LockConfigError if the lock does not have this key
   */
  fencingTokenOf(key: string): bigint;
  /**
   * Aborts with `LockLostError` when the lease expires or another process has the lock, and with `LockShutdownError`
   * when shutdown has waited for `drainMs`. A lock of several keys is lost with any of them. If the event loop is blocked, it aborts late, so call {@link isValid}
   * before a step that must not happen twice.
   */
  readonly signal: AbortSignal;
  /**
   * Whether the lock is still held. It reads the clock at each call, so it is correct even right after this process was
   * suspended. After the machine slept or its clock was set by a second or more, it returns `false` until the store has
   * confirmed the lock. The library asks the store at once.
   */
  isValid(): boolean;
  /** How many ms the lease still lasts at least; 0 after its end. */
  remainingMs(): number;
  /** @throws LockLostError unless {@link isValid} */
  throwIfLost(): void;
  /**
   * Extends the lease to at least `leaseMs` from now. After a step of the wall clock, it first asks the store whether
   * the lock is still held.
   *
   * @throws LockLostError if the lock was lost or released
   * @throws LockUnavailableError if the store did not reply
   * @throws LockConfigError if the backend does not allow a lease of this length
   */
  extend(leaseMs: number): Promise<void>;
  /**
   * Releases the lock. Returns `false` if it was no longer held. Safe to call twice. Prefer `await using` or
   * `withLock`: in a `finally` block, an error of `release()` replaces the result or the error of the work.
   *
   * @throws LockUnavailableError if the store did not reply; the release is then retried in the background until the
   *   lease would have ended
   * @throws LockShutdownError if the application has closed; the lease then expires
   */
  release(): Promise<boolean>;
}
