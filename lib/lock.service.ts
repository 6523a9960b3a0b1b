import { LockConfigError } from './core/errors.js';
import type { EventSource } from './core/events.js';
import { formatValue } from './core/format.js';
import type { ListOptions } from './core/list-options.js';
import type { LockInfo, LockList } from './core/lock-admin.js';
import type { Lock } from './core/lock.js';
import type { LockKey } from './core/key.js';
import type { Locks } from './core/locks.js';
import type { AcquireOptions } from './core/options.js';
import { SharedAcrossCopies } from './core/package-copies.js';
import type { StoreHealthResult } from './core/store-health.js';
import { createInjectDecorator } from './decorators/decorated-method.js';
import { rejectStream } from './decorators/reject-stream.js';

/** Acquires locks. A lock is a lease that can be lost: see {@link Lock.signal} and {@link Lock.fencingToken}. */
@SharedAcrossCopies('LockService')
export class LockService {
  readonly #locks: Locks;

  /** Created by `DistributedLockModule`; do not create it yourself. */
  constructor(locks: Locks) {
    this.#locks = locks;
  }

  /**
   * Waits for the lock and returns it. You must release it: prefer {@link withLock}, or `await using`.
   *
   * With a list of up to 32 keys it acquires all of them or none, in the same order in every process, so callers never
   * wait in a circle. `waitMs` counts for all together. While it waits, it may hold some of the keys.
   *
   * A lock acquired here does not belong to an async context, so re-entry is not detected: a second call for the same
   * key waits like any other caller.
   *
   * @throws LockTimeoutError if the key is still taken after `waitMs`
   * @throws LockUnavailableError if the store cannot be reached or does not reply. Callers that were already waiting
   *   continue to wait until `waitMs` is over
   * @throws LockReentryError if the current asynchronous call already holds the key through `withLock` or a decorator
   * @throws LockConfigError if the key or an option is wrong; with `lockOrder: 'throw'` of the module also if this call
   *   holds a lock, and earlier calls acquired the two in the opposite order
   * @throws LockShutdownError if the application is shutting down
   * @throws the reason of `options.signal`, if that signal ends the wait
   */
  acquire(key: string | readonly string[], options?: AcquireOptions): Promise<Lock> {
    return this.#locks.acquire(key, options);
  }

  /**
   * Tries once to acquire the lock, and does not wait. Returns `null` if another caller holds the key, or one of them.
   * Throws what {@link acquire} throws, except `LockTimeoutError`. The options are those of `acquire`; `waitMs` has no effect.
   */
  tryAcquire(key: string | readonly string[], options?: AcquireOptions): Promise<Lock | null> {
    return this.#locks.tryAcquire(key, options);
  }

  /**
   * Runs the work under the lock and then releases the lock. The caller receives the value or exception of the work
   * unchanged, even if the release fails. If the lock was valid until the work ended, the promise settles as soon as
   * the release has been sent (on MySQL, MariaDB, SQLite, etcd and ZooKeeper with its reply), so `process.exit()` may
   * follow. If the store does not answer, it settles after at most 2 s.
   *
   * @throws what {@link acquire} throws, before the work begins
   * @throws LockConfigError if the work returns an Observable, a stream or an iterator, which would be read after the
   *   release, without the lock
   * @throws LockLostError if the work returned, but the lock was known to be lost before the work ended. If only the
   *   store's reply to the release shows the loss (after a restart without persistence, or `forceRelease`), the event
   *   `lost` is published instead
   */
  withLock<T>(key: string | readonly string[], work: (lock: Lock) => T | Promise<T>): Promise<T>;
  withLock<T>(
    key: string | readonly string[],
    options: AcquireOptions | undefined,
    work: (lock: Lock) => T | Promise<T>,
  ): Promise<T>;
  async withLock<T>(
    key: LockKey,
    ...rest: [(lock: Lock) => T | Promise<T>] | [AcquireOptions | undefined, (lock: Lock) => T | Promise<T>]
  ): Promise<T> {
    const [options = {}, work] = rest.length === 1 ? [{}, rest[0]] : rest;
    if (typeof work !== 'function') {
      throw new LockConfigError(
        `Expected the work of withLock() to be a function, got ${formatValue(work)}. Options come before it: ` +
          `withLock(key, options, work).`,
        { key: String(key) },
      );
    }
    return await this.#locks.withLock(key, options, async (lock) =>
      rejectStream(await work(lock), () => `withLock(${formatValue(key)})`),
    );
  }

  /**
   * Returns who holds the key according to the store; `null` if it is free. The result may be out of date when it arrives,
   * so do not base decisions on it.
   *
   * @throws LockUnavailableError if the store cannot be reached
   */
  inspect(key: string): Promise<LockInfo | null> {
    return this.#locks.inspect(key);
  }

  /** @internal The module and process of its events. */
  get source(): EventSource {
    return this.#locks.events.source;
  }

  /** @internal For the health check: see {@link StoreHealth.check}. */
  checkStore(timeoutMs: number): Promise<StoreHealthResult> {
    return this.#locks.health.check(timeoutMs);
  }

  /**
   * Returns one page of the locks that are held now, in the order of the store, which differs between stores. Jobs and
   * elections are not among them. The store is not blocked meanwhile: each page is a separate request, so a lock that
   * is acquired or released between two of them may be missing, and a page may be short or empty and still have a cursor.
   *
   * ```ts
   * let cursor: string | undefined;
   * do {
   *   const page = await locks.list({ prefix: 'order:', ...(cursor && { cursor }) });
   *   for (const { key, instance, since } of page.locks) console.log(key, instance, since);
   *   cursor = page.cursor;
   * } while (cursor);
   * ```
   *
   * @throws LockUnavailableError if the store cannot be reached
   * @throws LockConfigError if an option is wrong, or the cursor is not one of this store
   */
  list(options: ListOptions = {}): Promise<LockList> {
    return this.#locks.list(options);
  }

  /**
   * Releases the lock of another holder, if its grant still has this fencing token. Returns `false` if that grant no
   * longer holds the key. The former holder detects the loss at its next renewal, so it may continue to work for about
   * a third of its lease.
   *
   * @throws LockUnavailableError if the store cannot be reached
   * @throws LockConfigError if the fencing token is not a bigint, or several permits have it: then pass `permit` too
   */
  async forceRelease(key: string, expected: { fencingToken: bigint; permit?: number }): Promise<boolean> {
    const { fencingToken, permit } = { ...expected } as { fencingToken: unknown; permit?: number };
    if (typeof fencingToken !== 'bigint') {
      throw new LockConfigError(
        `Expected { fencingToken } with the bigint that inspect() returns, got ${formatValue(expected)}.`,
        { key },
      );
    }
    return this.#locks.forceRelease(key, fencingToken, permit);
  }
}

/** The provider token of the service: the class itself, or a text for a named module. */
export const getLockServiceToken = (name?: string): typeof LockService | string =>
  name === undefined ? LockService : `${name}LockService`;

/** Injects the service of the module with this name; without a name, that of the unnamed module. */
export const InjectLockService: (name?: string) => PropertyDecorator & ParameterDecorator =
  createInjectDecorator('InjectLockService', getLockServiceToken);
