import { permitBaseKey, permitStoreKey } from '../key.js';
import { type CompositeCall, type KindParts, CompositeAcquisition } from './composite-acquisition.js';
import { CompositeLock, type CompositeLockOptions } from './composite-lock.js';
import { type GrantedSlot, SlotRace } from './slot-race.js';

/** One of the permits of a key. */
export class PermitLock extends CompositeLock {
  readonly #permit: number;

  constructor(permit: number, options: CompositeLockOptions) {
    super(options);
    this.#permit = permit;
  }

  override get permit(): number {
    return this.#permit;
  }
}

/** Acquires one of the permits of a key: up to `permits` holders at the same time. */
export class Permits {
  readonly #call: CompositeCall;
  readonly #parts: KindParts;
  readonly #acquisition: CompositeAcquisition;
  readonly #race: SlotRace;

  constructor(permits: number, call: CompositeCall, parts: KindParts) {
    this.#call = call;
    this.#parts = parts;
    this.#acquisition = new CompositeAcquisition(call, parts);
    const { key } = call;
    const slots = Array.from({ length: permits }, (_, index) => permitStoreKey(parts.namespace, key, index));
    this.#race = new SlotRace({ key, slots }, this.#acquisition, parts.waitQueues);
  }

  acquire(): Promise<PermitLock> {
    return this.#acquisition.run(async () => this.#lockOf(await this.#race.acquire()));
  }

  tryAcquire(): Promise<PermitLock | null> {
    return this.#acquisition.run(async () => {
      const slot = await this.#race.tryAcquire();
      return slot && this.#lockOf(slot);
    });
  }

  #lockOf({ index, lease }: GrantedSlot): PermitLock {
    const { key, label } = this.#call;
    const storeKeys = permitBaseKey(this.#parts.namespace, key);
    const { waitedMs } = this.#acquisition;
    return new PermitLock(index, { key, label, storeKeys, parts: [lease], waitedMs, publisher: this.#parts });
  }
}
