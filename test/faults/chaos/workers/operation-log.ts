import { openSync, writeSync } from 'node:fs';
import { machineMs } from '../../../support/machine-clock.js';
import type { LogEntry } from './history.js';

type NewLogEntry<L extends LogEntry = LogEntry> = L extends LogEntry ? Omit<L, 'atMs'> : never;

/** What a worker writes down. Each line is with the kernel when `note` returns, so it outlives a kill. */
export class OperationLog {
  readonly #file: number;

  constructor(path: string) {
    this.#file = openSync(path, 'a');
  }

  append(entry: NewLogEntry, atMs = machineMs()): void {
    writeSync(this.#file, `${JSON.stringify({ ...entry, atMs })}\n`);
  }
}
