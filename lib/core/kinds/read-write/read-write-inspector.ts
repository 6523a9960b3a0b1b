import { withJson } from '../../json.js';
import { MAX_READING_PROCESSES, readWriteListPrefix, readWriteStoreKey, splitPermitKey } from '../../key.js';
import type { ListOptions } from '../../list-options.js';
import type { LockInfo, LockInspector, LockList } from '../../lock-inspector.js';

interface ReadWriteInspectorParts {
  readonly namespace: string;
  readonly inspector: LockInspector;
}

/**
 * Reads and releases the slots of keys that are read and written. The slots of readers that the process with slot 0 has
 * too are those of its writer, and count as that.
 */
export class ReadWriteInspector {
  readonly #parts: ReadWriteInspectorParts;

  constructor(parts: ReadWriteInspectorParts) {
    this.#parts = parts;
  }

  /** The writer, if there is one, and the readers of other processes. */
  async holdersOf(key: string): Promise<LockInfo[]> {
    const slots = await this.#slotsOf(key);
    const writer = slots.find(isWriter);
    return slots.filter((slot) => slot === writer || slot.instance !== writer?.instance);
  }

  async list(options: ListOptions): Promise<LockList> {
    const { namespace, inspector } = this.#parts;
    const page = await inspector.listLocks(options, readWriteListPrefix(namespace));
    const slots = page.locks.map((info) => {
      const { key, permit } = splitPermitKey(info.key);
      return describeSlot(info, key, permit);
    });
    const writers = new Map(slots.filter(isWriter).map((slot) => [slot.key, slot.instance]));
    // The writer may be on another page than the slots that it has taken from readers.
    const others = [...new Set(slots.map(({ key }) => key))].filter((key) => !writers.has(key));
    await Promise.all(
      others.map(async (key) => {
        const record = await inspector.readRecord(key, readWriteStoreKey(namespace, key, 0));
        if (record) writers.set(key, record.instance);
      }),
    );
    const locks = slots.filter((slot) => isWriter(slot) || writers.get(slot.key) !== slot.instance);
    return page.cursor === undefined ? { locks } : { locks, cursor: page.cursor };
  }

  /** Releases the slot, and with slot 0 those that its process has taken from readers. */
  async forceRelease(key: string, { fencingToken, permit = 0, instance }: LockInfo): Promise<boolean> {
    const { namespace, inspector } = this.#parts;
    const slots = permit === 0 ? await this.#slotsOf(key) : [];
    const isReleased = await inspector.forceRelease(
      key,
      readWriteStoreKey(namespace, key, permit),
      fencingToken,
    );
    // A writer that still waits for readers gives its slots back itself. Some of them may be readers of its process.
    const isWriting =
      slots.length > MAX_READING_PROCESSES && slots.every((slot) => slot.instance === instance);
    if (!isReleased || !isWriting) return isReleased;
    const ofReaders = slots.filter((slot) => !isWriter(slot));
    await Promise.all(
      ofReaders.map(({ permit: slot = 0, fencingToken: token }) =>
        inspector.forceRelease(key, readWriteStoreKey(namespace, key, slot), token),
      ),
    );
    return true;
  }

  async #slotsOf(key: string): Promise<LockInfo[]> {
    const { namespace, inspector } = this.#parts;
    const slots = Array.from({ length: MAX_READING_PROCESSES + 1 }, (_, slot) => slot);
    const found = await Promise.all(
      slots.map(async (slot) => {
        const info = await inspector.inspectLock(key, readWriteStoreKey(namespace, key, slot));
        return info && describeSlot(info, key, slot);
      }),
    );
    return found.filter((info) => info !== null);
  }
}

const isWriter = ({ permit }: LockInfo) => permit === 0;

const describeSlot = (info: LockInfo, key: string, slot: number): LockInfo =>
  withJson({ ...info, key, permit: slot, mode: slot === 0 ? 'write' : 'read' });
