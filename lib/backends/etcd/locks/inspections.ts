import type { LockRecord } from '../../../core/lock-record.js';
import { setImmediate } from '../../../core/real-timers.js';
import type { LockReader } from './lock-reader.js';

/** Each key takes two operations of the 128 that etcd accepts in a transaction. */
const MAX_PER_TRANSACTION = 60;

interface Inspection {
  readonly key: string;
  readonly timeoutMs: number;
  readonly resolve: (record: LockRecord | null) => void;
  readonly reject: (cause: unknown) => void;
}

/** Reads the holders of keys. Those that are asked for in one turn of the event loop share transactions. */
export class Inspections {
  readonly #reader: LockReader;
  #pending: Inspection[] = [];

  constructor(reader: LockReader) {
    this.#reader = reader;
  }

  inspect(key: string, timeoutMs: number): Promise<LockRecord | null> {
    return new Promise((resolve, reject) => {
      if (this.#pending.push({ key, timeoutMs, resolve, reject }) === 1) setImmediate(() => this.#sendAll());
    });
  }

  #sendAll(): void {
    const pending = this.#pending;
    this.#pending = [];
    for (let start = 0; start < pending.length; start += MAX_PER_TRANSACTION)
      void this.#send(pending.slice(start, start + MAX_PER_TRANSACTION));
  }

  async #send(inspections: readonly Inspection[]): Promise<void> {
    // The core limits how long each caller waits.
    const timeoutMs = Math.max(...inspections.map((one) => one.timeoutMs));
    try {
      const records = await this.#reader.inspectAll(
        inspections.map(({ key }) => key),
        timeoutMs,
      );
      for (const [index, { resolve }] of inspections.entries()) resolve(records[index] ?? null);
    } catch (cause) {
      for (const { reject } of inspections) reject(cause);
    }
  }
}
