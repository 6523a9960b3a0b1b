import type { Taken } from '../backend-results.js';
import { unavailableError } from '../error-factories.js';
import { LockTimeoutError, isError } from '../errors.js';
import { LockHandle } from '../leases/lock-handle.js';
import { StoreTimeoutError, withTimeout } from '../requests/store-timeout.js';
import type { AcquireParams } from '../waiting/waiter.js';
import { type CompositeAcquisition, type KindParts, HIDDEN_IN_WHOLE } from './composite-acquisition.js';
import type { SlotReader } from './slot-reader.js';
import { isTaken, isUnknown, releaseAll, tryParts } from './try-parts.js';

export interface GrantedSlot {
  readonly index: number;
  readonly handle: LockHandle;
}

export interface SlotRaceParts extends KindParts {
  readonly slotReader: SlotReader;
}

/** How long a call that does not wait for a slot waits for the store, in all. */
const MAX_TRY_MS = 1_000;

/**
 * Acquires one of several slots, each of which is a key of its own in the store. First it asks for a random one, so that
 * a free slot costs one request. If that is taken, it waits in the queues of all slots at once, each of which is first
 * come, first served. The slot that is granted first wins, and the other places are given up.
 */
export class SlotRace {
  readonly #key: string;
  readonly #slots: readonly string[];
  readonly #acquisition: CompositeAcquisition;
  readonly #parts: SlotRaceParts;

  constructor(
    { key, slots }: { readonly key: string; readonly slots: readonly string[] },
    acquisition: CompositeAcquisition,
    parts: SlotRaceParts,
  ) {
    this.#key = key;
    this.#slots = slots;
    this.#acquisition = acquisition;
    this.#parts = parts;
  }

  /** Why the store does not say which slots are free, while callers of this process wait for them. */
  get outage(): unknown {
    const outages = this.#slots.map((slot) => this.#parts.waitQueues.outageAt(slot));
    return outages.find((outage) => outage !== undefined);
  }

  /** Waits for a slot. Rejects with the error of a slot when no queue is left in which it waits. */
  acquire(): Promise<GrantedSlot> {
    return new Promise((resolve, reject) => {
      const asked = new Set<number>();
      const errors: unknown[] = [];
      // The reason of a caller's signal may be any value.
      const fail: (reason: unknown) => void = reject;
      let hasWon = false;
      const enqueue = (index: number, isFirst: boolean): void => {
        asked.add(index);
        // Ends the other waits in the turn of the event loop in which the slot is granted, so that no other is granted.
        const onGranted = () => {
          if (!hasWon) this.#acquisition.endParts();
        };
        const onContended = (remainingMs: number) => this.#acquisition.onContended(remainingMs);
        const observer = { onContended, onQueued: enqueueOthers, onGranted };
        const params = { ...this.#paramsOf(index, isFirst), observer };
        this.#parts.waitQueues.acquire(params).then(
          (handle) => {
            if (hasWon) releaseAll([handle]);
            else {
              hasWon = true;
              handle.suppressedEvents = HIDDEN_IN_WHOLE;
              resolve({ index, handle });
            }
          },
          (error: unknown) => {
            errors.push(error);
            if (errors.length === asked.size && !hasWon) fail(worstOf(errors));
          },
        );
      };
      const enqueueOthers = (): void => {
        for (const index of this.#slots.keys()) if (!asked.has(index)) enqueue(index, false);
      };
      enqueue(this.#pickSlot(), true);
    });
  }

  /**
   * Does not wait. Asks for one slot. If it is taken, reads which of the others are free, and asks for those one after the
   * other: a call that asked for several at once would keep them for a moment from other calls, which then get none.
   *
   * @throws LockUnavailableError if the store does not say in time whether a slot is free
   */
  async tryAcquire(): Promise<GrantedSlot | Taken> {
    const first = this.#pickSlot();
    // From now on: the caller may have waited for another one of its process before.
    const giveUpAtMs = this.#parts.clock.monotonicMs() + MAX_TRY_MS;
    const outcome = await this.#tryOne(first, { isFirst: true, giveUpAtMs });
    if ('handle' in outcome) return outcome;
    for (const index of await this.#findFree(giveUpAtMs)) {
      // Another caller of this process may have got it meanwhile.
      if (index === first || this.#parts.waitQueues.grantAt(this.#slots[index] ?? '')) continue;
      const other = await this.#tryOne(index, { isFirst: false, giveUpAtMs });
      if ('handle' in other) return other;
    }
    return outcome;
  }

  /** @throws LockUnavailableError if the store does not say whether the slot is free */
  async #tryOne(
    index: number,
    { isFirst, giveUpAtMs }: { readonly isFirst: boolean; readonly giveUpAtMs: number },
  ): Promise<GrantedSlot | Taken> {
    this.#acquisition.throwIfEnded();
    const params = { ...this.#paramsOf(index, isFirst), maxResultWaitMs: this.#leftMs(giveUpAtMs) };
    const [result] = await tryParts(this.#parts.waitQueues, [params]);
    if (result instanceof LockHandle) {
      result.suppressedEvents = HIDDEN_IN_WHOLE;
      return { index, handle: result };
    }
    if (result && isTaken(result)) return result;
    throw unavailableError(this.#key, result && isUnknown(result) ? result.cause : undefined);
  }

  /** The slots that nobody holds, in random order, and then those of which the store does not say so in time. */
  async #findFree(giveUpAtMs: number): Promise<readonly number[]> {
    const { free, unread, ended } = this.#parts.slotReader.read(this.#key, this.#slots);
    await this.#acquisition.untilEnded(
      withTimeout(this.#parts.clock, this.#leftMs(giveUpAtMs), ended, { awaited: true }),
    );
    return [free, unread].flatMap((some) => shuffled([...some].map((slot) => this.#slots.indexOf(slot))));
  }

  /** @throws LockUnavailableError if nothing is left */
  #leftMs(giveUpAtMs: number): number {
    const leftMs = giveUpAtMs - this.#parts.clock.monotonicMs();
    if (leftMs > 0) return leftMs;
    throw unavailableError(this.#key, new StoreTimeoutError(MAX_TRY_MS));
  }

  /** A random slot, of those that this process neither holds nor waits for if there are any. */
  #pickSlot(): number {
    const all = [...this.#slots.keys()];
    const free = all.filter((index) => !this.#parts.waitQueues.isBusy(this.#slots[index] ?? ''));
    const from = free.length > 0 ? free : all;
    return from[Math.floor(Math.random() * from.length)] ?? 0;
  }

  #paramsOf(index: number, isFirst: boolean): AcquireParams {
    const params = this.#acquisition.paramsOf(this.#key, this.#slots[index] ?? '', { isFirst });
    return { ...params, eventPermit: index };
  }
}

/** A store that did not answer says more than a wait that was over. */
const worstOf = (errors: readonly unknown[]): unknown =>
  errors.find((error) => !isError(LockTimeoutError, error)) ?? errors[0];

/** In random order (Fisher-Yates). */
function shuffled(indexes: readonly number[]): number[] {
  const all = [...indexes];
  for (let last = all.length - 1; last > 0; last -= 1) {
    const other = Math.floor(Math.random() * (last + 1));
    [all[last], all[other]] = [all[other] as number, all[last] as number];
  }
  return all;
}
