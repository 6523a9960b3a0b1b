import type { LockAdmin } from '../lock-admin.js';
import type { WaitQueues } from '../waiting/wait-queues.js';

/** What the store has said about some slots so far. */
export interface SlotReading {
  /** Those that nobody held. */
  readonly free: Set<string>;
  /** Those of which the store has not said whether somebody holds them. */
  readonly unread: Set<string>;
  /** Resolves when the store has answered, or has not in time. */
  readonly ended: Promise<unknown>;
}

interface SlotReaderParts {
  readonly lockAdmin: LockAdmin;
  readonly waitQueues: WaitQueues;
}

/**
 * Reads which slots of a key are free. Callers at the same time share a reading, because each costs a request for each slot;
 * but none gets a reading that began before it asked.
 */
export class SlotReader {
  readonly #parts: SlotReaderParts;
  /** The readings that have not begun, by key. */
  readonly #next = new Map<string, SlotReading>();
  /** The ends of the last readings that are in progress or have not begun, by key. */
  readonly #ends = new Map<string, Promise<unknown>>();

  constructor(parts: SlotReaderParts) {
    this.#parts = parts;
  }

  /** `slots`: the store keys of all slots. Calls with the same first slot and as many slots share their readings. */
  read(key: string, slots: readonly string[]): SlotReading {
    const id = `${slots.length} ${slots[0]}`;
    const shared = this.#next.get(id);
    if (shared) return shared;
    const [free, unread] = [new Set<string>(), new Set(slots)];
    const begin = () => {
      this.#next.delete(id);
      return Promise.all(slots.map((slot) => this.#readSlot(key, slot, { free, unread })));
    };
    const ended = (this.#ends.get(id) ?? Promise.resolve()).then(begin).finally(() => {
      if (this.#ends.get(id) === ended) this.#ends.delete(id);
    });
    this.#ends.set(id, ended);
    const reading = { free, unread, ended };
    this.#next.set(id, reading);
    return reading;
  }

  async #readSlot(key: string, slot: string, { free, unread }: Omit<SlotReading, 'ended'>): Promise<void> {
    const { lockAdmin, waitQueues } = this.#parts;
    const isHeldHere = waitQueues.grantAt(slot) !== undefined;
    const record = isHeldHere || (await lockAdmin.readRecord(key, slot).catch(() => undefined));
    if (record === undefined) return;
    unread.delete(slot);
    if (!record) free.add(slot);
  }
}
