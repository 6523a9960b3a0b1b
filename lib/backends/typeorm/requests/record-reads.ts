import type { LockRecord } from '../../../core/lock-record.js';
import { nextTick } from '../../../core/real-timers.js';
import { deadlineIn } from '../../../core/requests/deadline.js';

type ReadRecords = (keys: readonly string[], timeoutMs: number) => Promise<readonly (LockRecord | null)[]>;

const MAX_BATCH_SIZE = 1_000;

/** The keys that one statement will read. */
interface Batch {
  readonly keys: string[];
  readonly records: Promise<readonly (LockRecord | null)[]>;
}

/**
 * Reads the records of single keys. Those that are asked for in one turn of the event loop are read by one statement: to look at
 * a key with permits or modes takes 81 records, and a connection sends its statements one after the other.
 */
export class RecordReads {
  readonly #readRecords: ReadRecords;
  /** Of this turn, by the time that the callers have. */
  readonly #batches = new Map<number, Batch>();

  constructor(readRecords: ReadRecords) {
    this.#readRecords = readRecords;
  }

  async read(key: string, timeoutMs: number): Promise<LockRecord | null> {
    const deadline = deadlineIn(timeoutMs);
    const { keys, records } = this.#batchOf(timeoutMs);
    const index = keys.push(key) - 1;
    try {
      return (await records)[index] ?? null;
    } catch (cause) {
      if (keys.length === 1) throw cause;
      // The database may refuse another key of the statement, such as one that its encoding lacks characters for.
      const [record = null] = await this.#readRecords([key], deadline.leftMs);
      return record;
    }
  }

  #batchOf(timeoutMs: number): Batch {
    const batch = this.#batches.get(timeoutMs);
    return batch && batch.keys.length < MAX_BATCH_SIZE ? batch : this.#begin(timeoutMs);
  }

  #begin(timeoutMs: number): Batch {
    const keys: string[] = [];
    const turnEnds = new Promise<void>((resolve) => nextTick(resolve));
    const records = turnEnds.then(() => {
      if (this.#batches.get(timeoutMs) === batch) this.#batches.delete(timeoutMs);
      return this.#readRecords(keys, timeoutMs);
    });
    const batch: Batch = { keys, records };
    this.#batches.set(timeoutMs, batch);
    return batch;
  }
}
