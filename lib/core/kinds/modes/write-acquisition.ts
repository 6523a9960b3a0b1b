import { setMaxListeners } from 'node:events';
import { unavailableError } from '../../error-factories.js';
import { MAX_READING_PROCESSES, modeContextKey, modeStoreKey } from '../../key.js';
import { Lease } from '../../leases/lease.js';
import type { AcquireParams } from '../../waiting/waiter.js';
import { type CompositeCall, type KindParts, CompositeAcquisition } from '../composite-acquisition.js';
import { CompositeLock } from '../composite-lock.js';
import { giveBack, isTaken, isUnknown, leasesAmong, tryParts } from '../try-parts.js';

/** The lock of a writer: slot 0, whose fencing token it has, and the slots of all readers. */
export class WriteLock extends CompositeLock {}

/**
 * Acquires a key to write it. Slot 0 orders the writers. Whoever has it asks for the slots of all readers at once, and
 * waits for those that are taken. Nobody else waits for them, so writers never wait in a circle.
 */
export class WriteAcquisition {
  readonly #call: CompositeCall;
  readonly #parts: KindParts;
  readonly #acquisition: CompositeAcquisition;

  constructor(call: CompositeCall, parts: KindParts) {
    this.#call = call;
    this.#parts = parts;
    this.#acquisition = new CompositeAcquisition(call, parts);
  }

  acquire(): Promise<WriteLock> {
    return this.#acquisition.run(async () => {
      for (;;) {
        const turn = await this.#wait(this.#paramsOf(0));
        const slots = await this.#takeReaderSlots(turn);
        if (slots) return this.#lockOf([turn, ...slots]);
        giveBack([turn]);
      }
    });
  }

  /** Asks for slot 0, and then for the others. Does not wait. */
  tryAcquire(): Promise<WriteLock | null> {
    return this.#acquisition.run(async () => {
      const [turn] = await this.#try([this.#paramsOf(0)]);
      if (!turn) return null;
      try {
        const slots = await this.#try(this.#readerSlots());
        if (slots.length > 0) return this.#lockOf([turn, ...slots]);
      } catch (error) {
        giveBack([turn]);
        throw error;
      }
      giveBack([turn]);
      return null;
    });
  }

  /** All of them, or none. */
  async #try(params: readonly AcquireParams[]): Promise<readonly Lease[]> {
    const results = await tryParts(this.#parts.waitQueues, params);
    const held = leasesAmong(results);
    if (held.length === results.length) return held;
    giveBack(held);
    const unknown = results.find(isUnknown);
    if (!unknown || results.some(isTaken)) return [];
    throw unavailableError(this.#call.key, unknown.cause);
  }

  /**
   * Waits for the slots of the readers. Returns `undefined` if the turn or a slot was lost: another writer may have the
   * turn then, so this one must not hold what that one waits for.
   */
  async #takeReaderSlots(turn: Lease): Promise<readonly Lease[] | undefined> {
    if (turn.isLost) return undefined;
    const ended = new AbortController();
    const signal = AbortSignal.any([this.#acquisition.signal, turn.signal, ended.signal]);
    setMaxListeners(0, signal);
    const held: Lease[] = [];
    const errors: unknown[] = [];
    const giveUp = () => {
      giveBack(held.splice(0));
      ended.abort();
    };
    turn.signal.addEventListener('abort', giveUp, { once: true });
    const waits = this.#readerSlots().map(async (params) => {
      try {
        const lease = await this.#wait({ ...params, signal });
        if (signal.aborted) giveBack([lease]);
        else held.push(lease);
      } catch (error) {
        errors.push(error);
        ended.abort();
      }
    });
    await Promise.all(waits);
    turn.signal.removeEventListener('abort', giveUp);
    if (held.length === MAX_READING_PROCESSES && ![turn, ...held].some((lease) => lease.isLost)) return held;
    giveUp();
    if (turn.isLost || errors.length === 0) return undefined;
    giveBack([turn]);
    throw errors[0];
  }

  #wait(params: AcquireParams): Promise<Lease> {
    this.#acquisition.throwIfEnded();
    const observer = { onContended: (remainingMs: number) => this.#acquisition.onContended(remainingMs) };
    return this.#parts.waitQueues.acquire({ ...params, observer });
  }

  #readerSlots(): AcquireParams[] {
    return Array.from({ length: MAX_READING_PROCESSES }, (_, index) => this.#paramsOf(index + 1));
  }

  #paramsOf(slot: number): AcquireParams {
    const { key } = this.#call;
    const storeKey = modeStoreKey(this.#parts.namespace, key, slot);
    return this.#acquisition.paramsOf(key, storeKey, { isFirst: slot === 0 });
  }

  #lockOf(leases: readonly [Lease, ...Lease[]]): WriteLock {
    const { key, label } = this.#call;
    const storeKeys = modeContextKey(this.#parts.namespace, key, 'write');
    const { waitedMs } = this.#acquisition;
    return new WriteLock({ key, label, storeKeys, parts: leases, waitedMs, publisher: this.#parts });
  }
}
