import { timeoutError } from '../error-factories.js';
import { permitBaseKey, permitStoreKey } from '../store-key.js';
import { type CompositeCall, CompositeAcquisition } from './composite-acquisition.js';
import { CompositeLock, type CompositeLockOptions } from './composite-lock.js';
import type { PermitLines } from './permit-lines.js';
import { type GrantedSlot, type SlotRaceParts, SlotRace } from './slot-race.js';

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

  get eventPermit(): number {
    return this.#permit;
  }
}

interface PermitParts extends SlotRaceParts {
  readonly permitLines: PermitLines;
}

/** Acquires one of the permits of a key: up to `permits` holders at the same time. */
export class Permits {
  readonly #call: CompositeCall;
  readonly #parts: PermitParts;
  readonly #acquisition: CompositeAcquisition;
  readonly #race: SlotRace;

  constructor(permits: number, call: CompositeCall, parts: PermitParts) {
    this.#call = call;
    this.#parts = parts;
    this.#acquisition = new CompositeAcquisition(call, parts);
    const { key } = call;
    const slots = Array.from({ length: permits }, (_, index) => permitStoreKey(parts.namespace, key, index));
    this.#race = new SlotRace({ key, slots }, this.#acquisition, parts);
  }

  acquire(): Promise<PermitLock> {
    return this.#acquisition.run(async () =>
      this.#lockOf(this.#call.waitMs > 0 ? await this.#acquireInTurn() : await this.#acquireNow()),
    );
  }

  tryAcquire(): Promise<PermitLock | null> {
    return this.#acquisition.run(async () => {
      const slot = await this.#race.tryAcquire();
      return 'handle' in slot ? this.#lockOf(slot) : null;
    });
  }

  #acquireInTurn(): Promise<GrantedSlot> {
    const { permitLines, namespace } = this.#parts;
    const caller = { call: this.#call, acquisition: this.#acquisition, race: this.#race };
    const baseKey = permitBaseKey(namespace, this.#call.key);
    return permitLines.run(baseKey, caller, () => this.#race.acquire());
  }

  async #acquireNow(): Promise<GrantedSlot> {
    const slot = await this.#race.tryAcquire();
    if ('handle' in slot) return slot;
    this.#acquisition.onContended(slot.remainingMs);
    throw timeoutError(this.#call.key, this.#acquisition.waitedMs, slot.remainingMs);
  }

  #lockOf({ index, handle }: GrantedSlot): PermitLock {
    const { key, label } = this.#call;
    const storeKeys = permitBaseKey(this.#parts.namespace, key);
    const { waitedMs } = this.#acquisition;
    return new PermitLock(index, {
      key,
      label,
      storeKeys,
      parts: [handle],
      waitedMs,
      publisher: this.#parts,
    });
  }
}
