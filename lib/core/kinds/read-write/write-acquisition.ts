import { unavailableError } from '../../error-factories.js';
import { LockLostError } from '../../errors.js';
import { MAX_READING_PROCESSES, readWriteContextKey, readWriteStoreKey } from '../../store-key.js';
import { LockHandle } from '../../leases/lock-handle.js';
import { WaitController } from '../../waiting/wait-controller.js';
import type { AcquireParams } from '../../waiting/waiter.js';
import { type CompositeCall, type KindParts, CompositeAcquisition } from '../composite-acquisition.js';
import { CompositeLock } from '../composite-lock.js';
import { areAllHeld, releaseAll, isTaken, isUnknown, handlesAmong, tryParts } from '../try-parts.js';

/** The lock of a writer: slot 0, whose fencing token it has, and the slots of all readers. */
export class WriteLock extends CompositeLock {}

/** Slot 0, and the slots of readers that were granted with it: `undefined` where one was not. */
interface Turn {
  readonly handle: LockHandle;
  readonly granted: readonly (LockHandle | undefined)[];
}

/**
 * Acquires a key to write it. Slot 0 orders the writers. Whoever has it waits for the slots of readers that are taken.
 * Nobody else waits for them, so writers never wait in a circle.
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
        const { handle, granted } = await this.#takeTurn();
        const slots = await this.#takeReaderSlots(handle, granted);
        const lock = slots && (await this.#lockOf([handle, ...slots]));
        if (lock) return lock;
        releaseAll([handle]);
      }
    });
  }

  /** Asks for slot 0, and then for the others. Does not wait. */
  tryAcquire(): Promise<WriteLock | null> {
    return this.#acquisition.run(async () => {
      const [turn] = await this.#try([this.#paramsOf(0)]);
      if (!turn) return null;
      const slots = await this.#try(this.#readerSlots()).catch((error: unknown) => {
        releaseAll([turn]);
        throw error;
      });
      if (slots.length > 0 && !turn.isLost) return await this.#lockOf([turn, ...slots]);
      releaseAll([turn, ...slots]);
      return null;
    });
  }

  /**
   * Waits for slot 0. If no caller of this process uses it, the slots of the readers are requested in the same batch, so
   * that a free key costs one request. They are kept only if slot 0 is granted by then: without it, a writer holds nothing.
   */
  async #takeTurn(): Promise<Turn> {
    const turnParams = this.#paramsOf(0);
    const isAlone = !this.#parts.waitQueues.isBusy(turnParams.storeKey);
    let hasTurn = false;
    const turn = this.#wait(turnParams).then((handle) => {
      hasTurn = true;
      return handle;
    });
    if (!isAlone) return { handle: await turn, granted: [] };
    const trying = tryParts(this.#parts.waitQueues, this.#readerSlots()).then((results) => {
      if (hasTurn) return results.map((result) => (result instanceof LockHandle ? result : undefined));
      releaseAll(handlesAmong(results));
      return [];
    });
    const [turnResult, slotsResult] = await Promise.allSettled([turn, trying]);
    if (turnResult.status === 'rejected') throw turnResult.reason;
    if (slotsResult.status === 'fulfilled') return { handle: turnResult.value, granted: slotsResult.value };
    releaseAll([turnResult.value]);
    throw slotsResult.reason;
  }

  /** All of them, or none. */
  async #try(params: readonly AcquireParams[]): Promise<readonly LockHandle[]> {
    const results = await tryParts(this.#parts.waitQueues, params);
    if (areAllHeld(results)) return results;
    releaseAll(handlesAmong(results));
    const unknown = results.find(isUnknown);
    if (!unknown || results.some(isTaken)) return [];
    throw unavailableError(this.#call.key, unknown.cause);
  }

  /**
   * Waits for the slots of the readers. It ends in one of three ways, and only with the first it holds any of them:
   *
   * - It has all of them, and nothing was lost.
   * - The turn or a slot was lost. Returns `undefined`: another writer may have the turn then, and must not wait for this one.
   * - A wait has failed, or the caller has given up. Then it releases the turn, too, and rejects.
   */
  async #takeReaderSlots(
    turn: LockHandle,
    granted: Turn['granted'],
  ): Promise<readonly LockHandle[] | undefined> {
    const held: LockHandle[] = granted.filter((handle) => handle !== undefined);
    const isLost = () => [turn, ...held].some((handle) => handle.isLost);
    // Something may have been lost while the store had not replied for all of them yet.
    if (held.length === MAX_READING_PROCESSES && !isLost()) return held;
    const missing = this.#readerSlots().filter((_, index) => !granted[index]);
    const ended = new WaitController();
    const unfollow = [this.#acquisition.signal, turn.signal].map((signal) => ended.follow(signal));
    const releaseHeld = () => releaseAll(held.splice(0));
    ended.addEventListener('abort', releaseHeld);
    const waits = missing.map(async (params) => {
      try {
        held.push(await this.#wait({ ...params, signal: ended }));
        if (ended.aborted) releaseHeld();
      } catch (error) {
        // The other waits end with the same error.
        ended.abort(error);
        throw error;
      }
    });
    const results = await Promise.allSettled(waits);
    for (const stop of unfollow) stop();
    if (held.length === MAX_READING_PROCESSES && !isLost()) return held;
    releaseHeld();
    const failed = results.find((result) => result.status === 'rejected');
    if (!failed || turn.isLost) return undefined;
    releaseAll([turn]);
    throw failed.reason;
  }

  #wait(params: AcquireParams): Promise<LockHandle> {
    this.#acquisition.throwIfEnded();
    const observer = { onContended: (remainingMs: number) => this.#acquisition.onContended(remainingMs) };
    return this.#parts.waitQueues.acquire({ ...params, observer });
  }

  #readerSlots(): AcquireParams[] {
    return Array.from({ length: MAX_READING_PROCESSES }, (_, index) => this.#paramsOf(index + 1));
  }

  /** The parts are renewed at least until all of them are granted. */
  #paramsOf(slot: number): AcquireParams {
    const { key } = this.#call;
    const storeKey = readWriteStoreKey(this.#parts.namespace, key, slot);
    const isFirst = slot === 0;
    // Slot 0 is handed over between readers and writers.
    return { ...this.#acquisition.paramsOf(key, storeKey, { isFirst }), renew: true, isOfWriter: !isFirst };
  }

  /** Returns `null` if one of them was lost: nobody has the lock then. */
  async #lockOf(handles: readonly [LockHandle, ...LockHandle[]]): Promise<WriteLock | null> {
    const { key, label, renew, leaseMs } = this.#call;
    if (!renew && !(await this.#extendAll(handles, leaseMs))) return null;
    const storeKeys = readWriteContextKey(this.#parts.namespace, key, 'write');
    const { waitedMs } = this.#acquisition;
    return new WriteLock({ key, label, storeKeys, parts: handles, waitedMs, publisher: this.#parts });
  }

  /**
   * A lock that is not renewed lasts for its lease from now on, however long it waited for the slots. Returns `false` if
   * one of them was lost.
   */
  async #extendAll(handles: readonly LockHandle[], leaseMs: number): Promise<boolean> {
    const extensions = await Promise.allSettled(handles.map((handle) => handle.extend(leaseMs)));
    for (const handle of handles) handle.stopRenewing();
    const failed = extensions.filter((extension) => extension.status === 'rejected');
    // A slot may have been lost after its own extension, while the others were not confirmed yet.
    if (failed.length === 0 && !handles.some((handle) => handle.isLost)) return true;
    releaseAll(handles);
    const other = failed.find(({ reason }) => !(reason instanceof LockLostError));
    if (other) throw other.reason;
    return false;
  }
}
