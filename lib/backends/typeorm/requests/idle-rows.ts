import { type Timer, systemClock } from '../../../core/clock.js';
import { ROWS_PER_PAGE, type RemovableRow } from '../dialects/row-statements.js';

/** After each page a pause of so many times its duration, so that locks find a connection free. */
const PAUSE_FACTOR = 4;

/** A pass is repeated sooner if it found at least one idle row in so many. */
const FEW_ONE_IN = 10;
/** The longest interval, in intervals. Other processes remove rows too, and a pass reads the whole table. */
const MAX_INTERVALS = 8;

interface IdleRowsParts {
  readonly tokenMemoryMs: number;
  /** Removes the idle rows among the next ones after this key. Resolves to these rows as they were read. */
  removePage(afterKey: string): Promise<readonly RemovableRow[]>;
}

/** One reading of the whole table, page by page in the order of the keys. */
interface Pass {
  readonly afterKey: string;
  readonly readCount: number;
  readonly idleCount: number;
  /** Whether rows remain that may become idle later. */
  readonly hasMore: boolean;
}

const NEW_PASS: Pass = { afterKey: '', readCount: 0, idleCount: 0, hasMore: false };

/**
 * Removes the rows of keys that were free for the time of the token memory, whichever process has left them. Reads the table
 * again and again while it contains rows of locks. No pass runs in a process that has granted nothing since.
 */
export class IdleRows {
  readonly #parts: IdleRowsParts;
  readonly #intervalMs: number;
  #intervals = 1;
  #timer: Timer | undefined;
  #isRunning = false;
  /** Whether a key was granted since the present pass began: the pass may have read its row before. */
  #hasGranted = false;
  #isClosed = false;

  constructor(parts: IdleRowsParts) {
    this.#parts = parts;
    this.#intervalMs = parts.tokenMemoryMs / 2;
  }

  /** There is a row now that will be idle one day. */
  onGranted(): void {
    this.#hasGranted = true;
    if (!this.#isRunning && !this.#isClosed) this.#schedule(this.#intervalMs, NEW_PASS);
  }

  /** A page that is being read ends with its connection. */
  close(): void {
    this.#isClosed = true;
    this.#timer?.cancel();
  }

  #schedule(delayMs: number, pass: Pass): void {
    this.#isRunning = true;
    this.#timer = systemClock.after(delayMs, () => void this.#removePage(pass));
  }

  async #removePage(pass: Pass): Promise<void> {
    const startedAtMs = systemClock.monotonicMs();
    if (pass === NEW_PASS) this.#hasGranted = false;
    // A failure is not reported: the rows do no harm, and the requests of locks show what is wrong with the store.
    const rows = await this.#parts.removePage(pass.afterKey).catch(() => undefined);
    if (this.#isClosed) return;
    const next = passAfter(pass, rows ?? []);
    if (rows?.length === ROWS_PER_PAGE)
      this.#schedule((systemClock.monotonicMs() - startedAtMs) * PAUSE_FACTOR, next);
    else if (rows) this.#end(next);
    else this.#repeatLater();
  }

  #end({ readCount, idleCount, hasMore }: Pass): void {
    const foundFew = readCount > ROWS_PER_PAGE && idleCount * FEW_ONE_IN < readCount;
    if (!foundFew) this.#intervals = 1;
    if (!hasMore && !this.#hasGranted) this.#isRunning = false;
    else if (foundFew) this.#repeatLater();
    else this.#schedule(this.#intervalMs, NEW_PASS);
  }

  #repeatLater(): void {
    this.#intervals = Math.min(this.#intervals * 2, MAX_INTERVALS);
    this.#schedule(this.#intervalMs * this.#intervals, NEW_PASS);
  }
}

const passAfter = (pass: Pass, rows: readonly RemovableRow[]): Pass => ({
  afterKey: rows.at(-1)?.key ?? '',
  readCount: pass.readCount + rows.length,
  idleCount: pass.idleCount + rows.filter(({ isIdle }) => isIdle).length,
  hasMore: pass.hasMore || rows.some(({ isIdle, isLock }) => isLock && !isIdle),
});
