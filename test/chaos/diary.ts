import { openSync, writeSync } from 'node:fs';
import { machineMs } from '../machine-ms.js';
import type { Line } from './history.js';

type Told<L extends Line = Line> = L extends Line ? Omit<L, 'atMs'> : never;

/** What a worker writes down. Each line is with the kernel when `note` returns, so it outlives a kill. */
export class Diary {
  readonly #file: number;

  constructor(path: string) {
    this.#file = openSync(path, 'a');
  }

  note(told: Told, atMs = machineMs()): void {
    writeSync(this.#file, `${JSON.stringify({ ...told, atMs })}\n`);
  }
}
