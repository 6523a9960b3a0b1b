import { isOfWriter, isSameProcess } from '../../holder.js';
import { withJson } from '../../json.js';
import {
  MAX_READING_PROCESSES,
  readWriteListPrefix,
  readWriteStoreKey,
  splitPermitKey,
} from '../../store-key.js';
import type { ListOptions } from '../../list-options.js';
import type { LockInfo, LockAdmin, LockList } from '../../lock-admin.js';

interface ReadWriteInspectorParts {
  readonly namespace: string;
  readonly lockAdmin: LockAdmin;
}

/**
 * Reads and releases the slots of keys that are read and written. Slot 0 and the slots that its writer has taken from
 * readers count as one holder.
 */
export class ReadWriteInspector {
  readonly #parts: ReadWriteInspectorParts;

  constructor(parts: ReadWriteInspectorParts) {
    this.#parts = parts;
  }

  /** The writer, if there is one, and the readers. */
  async holdersOf(key: string): Promise<LockInfo[]> {
    const slots = await this.#slotsOf(key);
    const turn = slots.find(isTurn);
    return slots.filter((slot) => !isTakenBy(turn?.holder, slot));
  }

  async list(options: ListOptions): Promise<LockList> {
    const { namespace, lockAdmin } = this.#parts;
    const page = await lockAdmin.listLocks(options, readWriteListPrefix(namespace));
    const slots = page.locks.map((info) => {
      const { key, permit } = splitPermitKey(info.key);
      return describeSlot(info, key, permit);
    });
    const turns = new Map(slots.filter(isTurn).map((slot) => [slot.key, slot.holder]));
    // Slot 0 may be on another page than the slots that its writer has taken from readers.
    const taken = slots.filter(({ key, holder }) => isOfWriter(holder) && !turns.has(key));
    await Promise.all(
      [...new Set(taken.map(({ key }) => key))].map(async (key) => {
        const record = await lockAdmin.readRecord(key, readWriteStoreKey(namespace, key, 0));
        if (record) turns.set(key, record.holder);
      }),
    );
    const locks = slots.filter((slot) => !isTakenBy(turns.get(slot.key), slot));
    return page.cursor === undefined ? { locks } : { locks, cursor: page.cursor };
  }

  /** Releases the slot, and with that of a writer that holds the key those that it has taken from readers. */
  async forceRelease(key: string, { fencingToken, permit = 0, holder }: LockInfo): Promise<boolean> {
    const { namespace, lockAdmin } = this.#parts;
    const slots = permit === 0 ? await this.#slotsOf(key) : [];
    const isReleased = await lockAdmin.forceRelease(
      key,
      readWriteStoreKey(namespace, key, permit),
      fencingToken,
    );
    const taken = slots.filter((slot) => isTakenBy(holder, slot));
    // A writer that still waits for readers gives its slots back itself, when it notices that it has lost its turn. If it
    // gets the last slot before that, nobody may have got another one.
    if (!isReleased || taken.length < MAX_READING_PROCESSES) return isReleased;
    await Promise.all(
      taken.map(({ permit: slot = 0, fencingToken: token }) =>
        lockAdmin.forceRelease(key, readWriteStoreKey(namespace, key, slot), token),
      ),
    );
    return true;
  }

  async #slotsOf(key: string): Promise<LockInfo[]> {
    const { namespace, lockAdmin } = this.#parts;
    const slots = Array.from({ length: MAX_READING_PROCESSES + 1 }, (_, slot) => slot);
    const found = await Promise.all(
      slots.map(async (slot) => {
        const info = await lockAdmin.inspectLock(key, readWriteStoreKey(namespace, key, slot));
        return info && describeSlot(info, key, slot);
      }),
    );
    return found.filter((info) => info !== null);
  }
}

const isTurn = ({ permit }: LockInfo) => permit === 0;

/** Whether the writer with this holder of slot 0 has taken the slot from readers. */
const isTakenBy = (turnHolder: string | undefined, { holder }: LockInfo): boolean =>
  turnHolder !== undefined && isOfWriter(holder) && isSameProcess(holder, turnHolder);

const describeSlot = (info: LockInfo, key: string, slot: number): LockInfo =>
  withJson({ ...info, key, permit: slot, mode: slot === 0 || isOfWriter(info.holder) ? 'write' : 'read' });
