import { createHash, randomUUID } from 'node:crypto';
import {
  chmodSync,
  closeSync,
  existsSync,
  mkdtempSync,
  openSync,
  readFileSync,
  renameSync,
  rmSync,
  writeSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { execa } from 'execa';
import { ensureProgram } from '../../services/install.js';

const SOURCE = fileURLToPath(new URL('clock-shim.c', import.meta.url));

/** Compiles it once for all processes. */
async function shim(): Promise<string> {
  const hash = createHash('sha256').update(readFileSync(SOURCE)).digest('hex').slice(0, 16);
  const file = join(tmpdir(), `lock-test-clock-${hash}.so`);
  if (existsSync(file)) return file;
  // g++ brings what C needs as well.
  const compiler = await ensureProgram('g++');
  const own = `${file}.${randomUUID()}`;
  await execa(compiler, ['-x', 'c', '-O2', '-shared', '-fPIC', '-o', own, SOURCE]);
  renameSync(own, file);
  return file;
}

/** The wall clock of a server, which tests set; see `clock-shim.c`. */
export class StoreClock {
  readonly #folder: string;
  readonly #file: number;
  readonly #shim: string;
  #aheadMs = 0;
  #stoppedAtMs: number | undefined;

  private constructor(folder: string, shim: string) {
    this.#folder = folder;
    this.#shim = shim;
    this.#file = openSync(join(folder, 'clock'), 'w');
    this.#write();
  }

  static async open(): Promise<StoreClock> {
    const folder = mkdtempSync(join(tmpdir(), 'lock-test-clock-'));
    // The server may run as another user.
    chmodSync(folder, 0o755);
    return new StoreClock(folder, await shim());
  }

  /** What the server must be started with. */
  get env(): Record<string, string> {
    return { LD_PRELOAD: this.#shim, CLOCK_SHIM: join(this.#folder, 'clock') };
  }

  step(byMs: number): void {
    this.#aheadMs += byMs;
    this.#write();
  }

  stop(): void {
    this.#stoppedAtMs = this.#nowMs();
    this.#write();
  }

  /** Goes on where it stood, or at the right time. */
  resume({ isBehind }: { readonly isBehind: boolean }): void {
    const stoppedAtMs = this.#stoppedAtMs ?? this.#nowMs();
    this.#stoppedAtMs = undefined;
    if (isBehind) this.#aheadMs = stoppedAtMs - Date.now();
    this.#write();
  }

  reset(): void {
    this.#aheadMs = 0;
    this.#stoppedAtMs = undefined;
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
    const numbers = [this.#aheadMs, this.#stoppedAtMs ?? 0].map((ms) => BigInt(Math.round(ms)) * 1_000n);
    writeSync(this.#file, BigInt64Array.from(numbers), 0, 16, 0);
  }
}
