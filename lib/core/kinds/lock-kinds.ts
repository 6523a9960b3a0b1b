import { LockConfigError } from '../errors.js';
import { checkKey, checkKeys } from '../key.js';
import {
  lockStoreKey,
  readWriteContextKey,
  readWriteListPrefix,
  permitBaseKey,
  permitListPrefix,
  splitPermitKey,
} from '../store-key.js';
import type { ReentrantLock } from '../leases/lock-views.js';
import type { InternalLock } from '../leases/internal-lock.js';
import { otherModeError } from '../error-factories.js';
import { findLockInContext, findOuterLock } from '../lock-context.js';
import {
  type AcquireOptions,
  type LockMode,
  type ResolvedLockOptions,
  resolveLockOptions,
} from '../options.js';
import type { LockOrder } from '../lock-order.js';
import type { CompositeCall, KindParts } from './composite-acquisition.js';
import type { SlotRaceParts } from './slot-race.js';
import { SlotReader } from './slot-reader.js';
import { KindInspector } from './kind-inspector.js';
import { KindRegistry } from './kind-registry.js';
import { ReadAcquisition } from './read-write/read-acquisition.js';
import { ReadGroups } from './read-write/read-groups.js';
import { WriteAcquisition } from './read-write/write-acquisition.js';
import { PermitLines } from './permit-lines.js';
import { Permits } from './permits.js';
import { type KeyOfSeveral, SeveralKeys } from './several-keys.js';

interface LockKindsParts extends KindParts {
  readonly namespace: string;
  readonly defaults: ResolvedLockOptions;
  readonly lockOrder: LockOrder | undefined;
  /** Stands for the locks of this process in lock contexts. */
  readonly locks: object;
}

type CompositeRequest = SeveralKeys | Permits | ReadAcquisition | WriteAcquisition;

/** Acquires the locks that consist of several acquisitions of the engine. */
export class LockKinds {
  readonly registry: KindRegistry;
  readonly inspector: KindInspector;
  readonly #parts: LockKindsParts;
  readonly #readGroups: ReadGroups;
  readonly #permitLines: PermitLines;
  readonly #slotReader: SlotReader;

  constructor(parts: LockKindsParts) {
    this.#parts = parts;
    this.#readGroups = new ReadGroups(parts.clock);
    this.#permitLines = new PermitLines(parts.clock, parts.stopController.signal);
    this.#slotReader = new SlotReader(parts);
    this.registry = new KindRegistry(parts.events);
    this.inspector = new KindInspector({
      ...parts,
      registry: this.registry,
      permitLines: this.#permitLines,
    });
  }

  /** Whether this is the key of a lock in the store, or of one of its permits or slots. */
  isStoreKeyOf(key: string, storeKey: string): boolean {
    const { namespace } = this.#parts;
    if (storeKey === lockStoreKey(namespace, key)) return true;
    return [permitListPrefix(namespace), readWriteListPrefix(namespace)].some(
      (prefix) => storeKey.startsWith(prefix) && splitPermitKey(storeKey.slice(prefix.length)).key === key,
    );
  }

  async acquire(key: unknown, options: AcquireOptions): Promise<InternalLock | ReentrantLock> {
    const request = this.#requestOf(key, options);
    return 'acquire' in request ? request.acquire() : request;
  }

  async tryAcquire(key: unknown, options: AcquireOptions): Promise<InternalLock | ReentrantLock | null> {
    const request = this.#requestOf(key, { ...options, waitMs: 0 });
    return 'acquire' in request ? request.tryAcquire() : request;
  }

  /** What acquires the lock, or the view of the lock that the call re-enters. */
  #requestOf(key: unknown, options: AcquireOptions): CompositeRequest | ReentrantLock {
    const { permits, mode } = options;
    if (mode !== undefined) return this.#readWriteOf(key, mode, options);
    if (permits === undefined) return this.#severalKeys(key, options);
    if (Array.isArray(key)) throw permitsOfSeveralError(key);
    checkKey(key);
    this.registry.onPermits(key, permits);
    const { namespace, locks } = this.#parts;
    const outer = findOuterLock(locks, key, permitBaseKey(namespace, key), options.reentrant);
    if (outer) return outer;
    const call = this.#callOf(key, options);
    this.#parts.lockOrder?.check([key], call);
    return new Permits(permits, call, { ...this.#slotParts, permitLines: this.#permitLines });
  }

  #readWriteOf(key: unknown, mode: LockMode, options: AcquireOptions): CompositeRequest | ReentrantLock {
    if (Array.isArray(key)) throw severalModesError(key);
    checkKey(key);
    this.registry.onReadWrite(key);
    const { namespace, locks } = this.#parts;
    const otherMode = mode === 'read' ? 'write' : 'read';
    const other = findLockInContext(locks, readWriteContextKey(namespace, key, otherMode));
    if (other?.isLost) other.throwIfLost();
    if (other?.isHeld) throw otherModeError(key, mode);
    const outer = findOuterLock(locks, key, readWriteContextKey(namespace, key, mode), options.reentrant);
    if (outer) return outer;
    const call = this.#callOf(key, options);
    this.#parts.lockOrder?.check([key], call);
    return mode === 'write'
      ? new WriteAcquisition(call, this.#parts)
      : new ReadAcquisition(call, { ...this.#slotParts, groups: this.#readGroups });
  }

  get #slotParts(): SlotRaceParts {
    return { ...this.#parts, slotReader: this.#slotReader };
  }

  #callOf(key: string, options: AcquireOptions): CompositeCall {
    const { label, signal } = options;
    return { key, label, signal, ...resolveLockOptions(options, this.#parts.defaults) };
  }

  #severalKeys(given: unknown, options: AcquireOptions): SeveralKeys {
    const { namespace, locks } = this.#parts;
    const { reentrant } = options;
    const checkedKeys = checkKeys(given);
    const call = this.#callOf(checkedKeys.join(', '), options);
    const keys: KeyOfSeveral[] = [];
    try {
      for (const key of checkedKeys) {
        this.registry.onPlain(key);
        const storeKey = lockStoreKey(namespace, key);
        keys.push({ key, storeKey, outer: findOuterLock(locks, key, storeKey, reentrant) });
      }
      const missing = keys.filter(({ outer }) => !outer);
      this.#parts.lockOrder?.check(
        missing.map(({ key }) => key),
        call,
      );
      return new SeveralKeys(keys, call, this.#parts);
    } catch (error) {
      // The outer locks would keep the views that nobody releases.
      for (const { outer } of keys) void outer?.release();
      throw error;
    }
  }
}

const permitsOfSeveralError = (keys: readonly unknown[]) =>
  new LockConfigError(
    `Expected one key with permits, got ${keys.length} keys. Acquire the permit first, and the keys inside.`,
  );

const severalModesError = (keys: readonly unknown[]) =>
  new LockConfigError(
    `Expected one key with a mode, got ${keys.length} keys. Acquire one lock inside the other, in the same order everywhere.`,
  );
