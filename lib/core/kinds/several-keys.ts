import { unavailableError } from '../error-factories.js';
import { LockLostError } from '../errors.js';
import { LockHandle } from '../leases/lock-handle.js';
import type { ReentrantLock } from '../leases/lock-views.js';
import { StoreTimeoutError } from '../requests/store-timeout.js';
import {
  type CompositeCall,
  type KindParts,
  CompositeAcquisition,
  HIDDEN_IN_WHOLE,
} from './composite-acquisition.js';
import type { AcquireParams } from '../waiting/waiter.js';
import type { LockPart } from './composite-lock.js';
import { KeysLock } from './keys-lock.js';
import { areAllHeld, isTaken, isUnknown, handlesAmong, releaseAll, tryParts } from './try-parts.js';

/** One of the keys, in the order in which all callers acquire them. */
export interface KeyOfSeveral {
  readonly key: string;
  readonly storeKey: string;
  /** The lock of an outer call that this call re-enters. */
  readonly outer: ReentrantLock | undefined;
}

/**
 * Acquires several keys, all or none. While it waits for a key it holds only those before it in the order, so callers
 * never wait in a circle.
 *
 * @see Havender, "Avoiding deadlock in multitasking systems" (1968)
 */
export class SeveralKeys {
  readonly #parts: KindParts;
  readonly #keys: readonly KeyOfSeveral[];
  readonly #call: CompositeCall;
  readonly #acquisition: CompositeAcquisition;

  constructor(keys: readonly KeyOfSeveral[], call: CompositeCall, parts: KindParts) {
    this.#keys = keys;
    this.#call = call;
    this.#parts = parts;
    this.#acquisition = new CompositeAcquisition(call, parts);
  }

  /** Waits for all keys. */
  acquire(): Promise<KeysLock> {
    return this.#acquisition.run(() => this.#acquireAll());
  }

  /** Asks once for all keys. */
  tryAcquire(): Promise<KeysLock | null> {
    return this.#acquisition.run(async () => {
      let held: readonly LockHandle[] = [];
      try {
        const results = await this.#try(this.#missing);
        held = handlesAmong(results);
        if (areAllHeld(results)) return this.#lockOf(held);
        // One key that is taken decides, whatever the others are.
        const unknown = results.find(isUnknown);
        if (unknown && !results.some(isTaken)) throw unavailableError(this.#call.key, unknown.cause);
      } catch (error) {
        this.#giveUp(held);
        throw error;
      }
      this.#giveUp(held);
      return null;
    });
  }

  /** The keys that no outer call holds. */
  get #missing(): readonly KeyOfSeveral[] {
    return this.#keys.filter(({ outer }) => !outer);
  }

  #giveUp(held: readonly LockHandle[]): void {
    releaseAll(held);
    for (const { outer } of this.#keys) void outer?.release();
  }

  async #acquireAll(): Promise<KeysLock> {
    const missing = this.#missing;
    const held: LockHandle[] = [];
    let hasWaited = false;
    try {
      while (held.length < missing.length) {
        this.#acquisition.throwIfEnded();
        await this.#acquireFree(missing, held);
        const next = missing[held.length];
        if (next) {
          await this.#waitFor(next, held);
          hasWaited = true;
        }
        if (hasWaited && held.length === missing.length) await this.#restoreLeases(held);
        // A key that was lost during the wait is acquired again. The keys after it are released before that.
        const lost = held.findIndex((handle) => handle.isLost);
        if (lost !== -1) releaseAll(held.splice(lost));
      }
      return this.#lockOf(held);
    } catch (error) {
      this.#giveUp(held);
      throw error;
    }
  }

  /** A lease that is not renewed under the work is as long as was asked for, although it was acquired before the wait. */
  async #restoreLeases(held: readonly LockHandle[]): Promise<void> {
    const { renew, leaseMs } = this.#call;
    if (renew || held.length === 1) return;
    for (const handle of held) handle.stopRenewing();
    const extensions = await Promise.allSettled(held.map((handle) => handle.extend(leaseMs)));
    for (const extension of extensions) {
      // A key that was lost is acquired again.
      if (extension.status === 'rejected' && !(extension.reason instanceof LockLostError))
        throw extension.reason;
    }
  }

  /** Acquires the keys that follow, up to the first that is taken. */
  async #acquireFree(missing: readonly KeyOfSeveral[], held: LockHandle[]): Promise<void> {
    const rest = missing.slice(held.length);
    const busy = rest.findIndex(({ storeKey }) => this.#parts.waitQueues.isBusy(storeKey));
    const free = busy === -1 ? rest : rest.slice(0, busy);
    if (free.length === 0) return;
    const results = await this.#try(free);
    const refused = results.findIndex((result) => !(result instanceof LockHandle));
    const granted = handlesAmong(results);
    // Nothing after the key that is waited for may be held.
    const kept = refused === -1 ? granted.length : refused;
    held.push(...granted.slice(0, kept));
    releaseAll(granted.slice(kept));
    const reason = results[kept];
    if (!reason || reason instanceof LockHandle || reason.kind !== 'unknown') return;
    // A store that is only slow is waited for, as by a caller of one key.
    if (!(reason.cause instanceof StoreTimeoutError)) throw unavailableError(this.#call.key, reason.cause);
  }

  async #waitFor({ key, storeKey }: KeyOfSeveral, held: LockHandle[]): Promise<void> {
    this.#acquisition.throwIfEnded();
    const observer = { onContended: (remainingMs: number) => this.#acquisition.onContended(remainingMs) };
    const params = { ...this.#paramsOf({ key, storeKey }), observer };
    held.push(await this.#parts.waitQueues.acquire(params));
  }

  #try(keys: readonly KeyOfSeveral[]) {
    const { waitQueues } = this.#parts;
    return tryParts(
      waitQueues,
      keys.map((key) => this.#paramsOf(key)),
    );
  }

  #paramsOf({ key, storeKey }: Pick<KeyOfSeveral, 'key' | 'storeKey'>): AcquireParams {
    const params = this.#acquisition.paramsOf(key, storeKey);
    // What is held while the call waits for another key is renewed meanwhile.
    return { ...params, renew: params.renew || this.#missing.length > 1 };
  }

  /** @throws LockLostError if an outer lock was lost or released during the wait */
  #lockOf(held: readonly LockHandle[]): KeysLock {
    for (const { outer } of this.#keys) outer?.throwIfEnded();
    for (const handle of held) {
      handle.suppressedEvents = HIDDEN_IN_WHOLE;
      if (!this.#call.renew) handle.stopRenewing();
    }
    const handles = held.values();
    const parts = this.#keys.map(({ outer }) => outer ?? (handles.next().value as LockHandle));
    return new KeysLock({
      key: this.#call.key,
      label: this.#call.label,
      storeKeys: this.#keys.map(({ storeKey }) => storeKey),
      parts: parts as readonly LockPart[] as [LockPart, ...LockPart[]],
      waitedMs: this.#acquisition.waitedMs,
      publisher: this.#parts,
    });
  }
}
