import { LockTimeoutError } from '../errors.js';
import type { Lease } from '../leases/lease.js';
import type { AcquireParams } from '../waiting/waiter.js';
import type { WaitQueues } from '../waiting/wait-queues.js';
import { type CompositeAcquisition, PUBLISHED_BY_WHOLE } from './composite-acquisition.js';
import { isTaken, isUnknown, leasesAmong, releaseAll, tryParts } from './try-parts.js';
import { unavailableError } from '../error-factories.js';

export interface GrantedSlot {
  readonly index: number;
  readonly lease: Lease;
}

/**
 * Acquires one of several slots, each of which is a key of its own in the store. First it asks for a random one, so that
 * a free slot costs one request. If that is taken, it waits in the queues of all slots at once, each of which is first
 * come, first served. The slot that is granted first wins, and the other places are given up.
 */
export class SlotRace {
  readonly #key: string;
  readonly #slots: readonly string[];
  readonly #acquisition: CompositeAcquisition;
  readonly #waitQueues: WaitQueues;

  constructor(
    { key, slots }: { readonly key: string; readonly slots: readonly string[] },
    acquisition: CompositeAcquisition,
    waitQueues: WaitQueues,
  ) {
    this.#key = key;
    this.#slots = slots;
    this.#acquisition = acquisition;
    this.#waitQueues = waitQueues;
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
        this.#waitQueues.acquire(params).then(
          (lease) => {
            if (hasWon) releaseAll([lease]);
            else {
              hasWon = true;
              lease.hides = PUBLISHED_BY_WHOLE;
              resolve({ index, lease });
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

  /** Asks for one slot, and if it is taken, for all others. Does not wait. */
  async tryAcquire(): Promise<GrantedSlot | null> {
    const first = this.#pickSlot();
    const others = [...this.#slots.keys()].filter((index) => index !== first);
    for (const indexes of [[first], others]) {
      const results = await tryParts(
        this.#waitQueues,
        indexes.map((index) => this.#paramsOf(index, index === first)),
      );
      const [lease, ...more] = leasesAmong(results);
      releaseAll(more);
      if (lease) {
        lease.hides = PUBLISHED_BY_WHOLE;
        return { index: indexes[results.indexOf(lease)] ?? first, lease };
      }
      const unknown = results.find(isUnknown);
      if (unknown && !results.some(isTaken)) throw unavailableError(this.#key, unknown.cause);
    }
    return null;
  }

  /** A random slot, of those that this process neither holds nor waits for if there are any. */
  #pickSlot(): number {
    const all = [...this.#slots.keys()];
    const free = all.filter((index) => !this.#waitQueues.isBusy(this.#slots[index] ?? ''));
    const from = free.length > 0 ? free : all;
    return from[Math.floor(Math.random() * from.length)] ?? 0;
  }

  #paramsOf(index: number, isFirst: boolean): AcquireParams {
    return this.#acquisition.paramsOf(this.#key, this.#slots[index] ?? '', { isFirst });
  }
}

/** A store that did not answer says more than a wait that was over. */
const worstOf = (errors: readonly unknown[]): unknown =>
  errors.find((error) => !(error instanceof LockTimeoutError)) ?? errors[0];
