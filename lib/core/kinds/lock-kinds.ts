import { checkKeys, lockStoreKey } from '../key.js';
import type { ReentrantLock } from '../leases/lock-views.js';
import type { OwnedLock } from '../leases/owned-lock.js';
import { findOuterLock } from '../lock-context.js';
import { type AcquireOptions, type ResolvedLockOptions, resolveLockOptions } from '../options.js';
import type { KindParts } from './composite-acquisition.js';
import { SeveralKeys } from './several-keys.js';

interface LockKindsParts extends KindParts {
  readonly namespace: string;
  readonly defaults: ResolvedLockOptions;
  /** Stands for the locks of this process in lock contexts. */
  readonly locks: object;
}

/** Acquires the locks that consist of several acquisitions of the engine. */
export class LockKinds {
  readonly #parts: LockKindsParts;

  constructor(parts: LockKindsParts) {
    this.#parts = parts;
  }

  async acquire(key: unknown, options: AcquireOptions): Promise<OwnedLock | ReentrantLock> {
    return this.#severalKeys(key, options).acquire();
  }

  async tryAcquire(key: unknown, options: AcquireOptions): Promise<OwnedLock | ReentrantLock | null> {
    return this.#severalKeys(key, { ...options, waitMs: 0 }).tryAcquire();
  }

  #severalKeys(given: unknown, options: AcquireOptions): SeveralKeys {
    const { namespace, locks, defaults } = this.#parts;
    const { reentrant, label, signal } = options;
    const keys = checkKeys(given).map((key) => {
      const storeKey = lockStoreKey(namespace, key);
      return { key, storeKey, outer: findOuterLock(locks, key, storeKey, reentrant) };
    });
    const name = keys.map(({ key }) => key).join(', ');
    return new SeveralKeys(
      keys,
      { key: name, label, signal, ...resolveLockOptions(options, defaults) },
      this.#parts,
    );
  }
}
