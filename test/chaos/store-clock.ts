import { closeSync, mkdtempSync, openSync, rmSync, chmodSync, writeSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { execa } from 'execa';
import { ensureProgram } from '../services/install.js';

const SOURCE = fileURLToPath(new URL('clock-shim.c', import.meta.url));

/** The wall clock of a server, which tests set; see `clock-shim.c`. */
export class StoreClock {
  readonly #folder: string;
  readonly #file: number;
  #aheadMs = 0;
  #standsAtMs: number | undefined;

  private constructor(folder: string) {
    this.#folder = folder;
    this.#file = openSync(join(folder, 'clock'), 'w');
    this.#write();
  }

  static async open(): Promise<StoreClock> {
    const folder = mkdtempSync(join(tmpdir(), 'lock-test-clock-'));
    // The server may run as another user.
    chmodSync(folder, 0o755);
    // g++ brings what C needs as well.
    const compiler = await ensureProgram('g++');
    await execa(compiler, ['-x', 'c', '-O2', '-shared', '-fPIC', '-o', join(folder, 'shim.so'), SOURCE]);
    return new StoreClock(folder);
  }

  /** What the server must be started with. */
  get env(): Record<string, string> {
    return { LD_PRELOAD: join(this.#folder, 'shim.so'), CLOCK_SHIM: join(this.#folder, 'clock') };
  }

  step(byMs: number): void {
    this.#aheadMs += byMs;
    this.#write();
  }

  stop(): void {
    this.#standsAtMs = this.#nowMs();
    this.#write();
  }

  /** Goes on where it stood, or at the right time. */
  goOn({ isBehind }: { readonly isBehind: boolean }): void {
    const standsAtMs = this.#standsAtMs ?? this.#nowMs();
    this.#standsAtMs = undefined;
    if (isBehind) this.#aheadMs = standsAtMs - Date.now();
    this.#write();
  }

  setRight(): void {
    this.#aheadMs = 0;
    this.#standsAtMs = undefined;
    this.#write();
  }

  close(): void {
    closeSync(this.#file);
    rmSync(this.#folder, { recursive: true, force: true });
  }

  #nowMs(): number {
    return Date.now() + this.#aheadMs;
  }

  #write(): void {
    const numbers = [this.#aheadMs, this.#standsAtMs ?? 0].map((ms) => BigInt(Math.round(ms)) * 1_000n);
    writeSync(this.#file, BigInt64Array.from(numbers), 0, 16, 0);
  }
}
