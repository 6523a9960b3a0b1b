import { Inject } from '@nestjs/common';
import { SharedAcrossCopies } from './core/package-copies.js';
import { LockConfigError } from './core/errors.js';
import type { Lock } from './core/lock.js';
import type { Locks } from './core/locks.js';
import type { AcquireOptions } from './core/options.js';
import type { LockInfo } from './core/lock-inspector.js';
import { formatValue } from './core/format.js';
import { checkModuleName, decoratorNotCalledError } from './decorators/decorated-method.js';

/** Locks, by injection. A lock is a lease: see {@link Lock.signal} and {@link Lock.fencingToken}. */
@SharedAcrossCopies('LockService')
export class LockService {
  readonly #locks: Locks;

  /** Made by `DistributedLockModule`; not by hand. */
  constructor(locks: Locks) {
    this.#locks = locks;
  }

  /**
   * Waits for the lock. Who holds it must give it back: prefer {@link withLock}, or `await using`.
   *
   * A lock taken here belongs to no asynchronous chain, so asking for it again waits like anybody else.
   *
   * @throws LockTimeoutError when it is still taken after `waitMs`
   * @throws LockUnavailableError when the store cannot be asked. Who already stood in line stays there until `waitMs`
   *   is over
   * @throws LockReentryError when this asynchronous chain holds the key already, by `withLock` or a decorator
   * @throws LockShutdownError when the application is shutting down
   * @throws the reason of `options.signal`, if that ends the wait
   */
  acquire(key: string, options?: AcquireOptions): Promise<Lock> {
    return this.#locks.acquire(key, options);
  }

  /**
   * Asks once and never waits for another holder: `null` means taken. Throws what {@link acquire} throws, but for the
   * time-out.
   */
  tryAcquire(key: string, options?: AcquireOptions): Promise<Lock | null> {
    return this.#locks.tryAcquire(key, options);
  }

  /**
   * Runs the work under the lock and gives it back. The value or exception of the work reaches the caller untouched,
   * also when the release fails. Answers once the release has been sent, if the lock was valid until then. A stream or
   * iterator that the work returns is read after the release, so without the lock.
   *
   * @throws what {@link acquire} throws, before the work begins
   * @throws LockLostError when the work returned, but the lock was known to be lost before it ended. What the store tells
   *   only in its answer to the release (a restart without persistence, a release by force) is published as `lost`
   */
  withLock<T>(key: string, work: (lock: Lock) => T | Promise<T>): Promise<T>;
  withLock<T>(key: string, options: AcquireOptions, work: (lock: Lock) => T | Promise<T>): Promise<T>;
  async withLock<T>(
    key: string,
    ...rest: [(lock: Lock) => T | Promise<T>] | [AcquireOptions, (lock: Lock) => T | Promise<T>]
  ): Promise<T> {
    const [options, work] = rest.length === 1 ? [{}, rest[0]] : rest;
    if (typeof work !== 'function') {
      throw new LockConfigError(
        `Expected the work of withLock() to be a function, got ${formatValue(work)}.`,
        {
          key,
        },
      );
    }
    return await this.#locks.withLock(key, options, work);
  }

  /**
   * Who holds the key, as the store knows it; `null` if it is free. Old news once it arrives: nothing to decide by.
   *
   * @throws LockUnavailableError
   */
  inspect(key: string): Promise<LockInfo | null> {
    return this.#locks.inspect(key);
  }

  /**
   * Takes the lock away from its holder, if it is still the grant with this fencing token. The holder learns of it at
   * its next renewal, so it may go on working for a third of its lease. `false`: that grant no longer holds the key.
   *
   * @throws LockUnavailableError
   */
  async forceRelease(key: string, expected: { fencingToken: bigint }): Promise<boolean> {
    const { fencingToken } = { ...expected } as { fencingToken: unknown };
    if (typeof fencingToken !== 'bigint') {
      throw new LockConfigError(
        `Expected { fencingToken } with the bigint that inspect() tells, got ${formatValue(expected)}.`,
        { key },
      );
    }
    return this.#locks.forceRelease(key, fencingToken);
  }
}

/** What Nest knows the service by: the class itself, or a text for a named module. */
export const getLockServiceToken = (name?: string): typeof LockService | string =>
  name === undefined ? LockService : `${name}LockService`;

/** Injects the service of the module with this name; without one, that of the unnamed module. */
export function InjectLockService(name?: string): PropertyDecorator & ParameterDecorator;
export function InjectLockService(name?: string, ...more: unknown[]): PropertyDecorator & ParameterDecorator {
  if (more.length > 0) throw decoratorNotCalledError('InjectLockService', name, more[0]);
  checkModuleName('InjectLockService', name);
  return Inject(getLockServiceToken(name));
}
