import { type Timer, systemClock } from '../../../core/clock.js';
import type { ConnectionPool } from '../connections/connection-pool.js';
import { Timeout, retryWhileBusy } from '../connections/session.js';
import type { Dialect, Statements } from '../dialects/dialect.js';
import { ROWS_PER_PAGE, type RemovableRow } from '../statements/scan-statements.js';

/** For one page of idle rows. A shorter time would close a connection of a database that is only slow. */
const CLEAN_UP_TIMEOUT_MS = 10_000;

/** After a page without idle rows a pause of so many times its duration, so that locks find a connection free. */
const PAUSE_FACTOR = 4;
/** The same after a page of idle rows only: where many keys are new, rows must be removed as quickly as they are made. */
const MIN_PAUSE_FACTOR = 0.5;

/** A pass is repeated sooner if it found at least one idle row in so many. */
const FEW_ONE_IN = 10;
/** The longest interval, in intervals. Other processes remove rows too, and a pass reads the whole table. */
const MAX_INTERVALS = 8;

/** The next rows after a key, as they were read. */
interface Page {
  readonly rows: readonly RemovableRow[];
  /** Whether the idle ones among them were removed since. */
  readonly isRemoved: boolean;
}

interface IdleRowsParts {
  readonly tokenMemoryMs: number;
  /** Removes the idle rows among the next ones after this key. Rejects if these cannot be read. */
  removePage(afterKey: string): Promise<Page>;
}

/** One reading of the whole table, page by page in the order of the keys. */
interface Pass {
  readonly afterKey: string;
  readonly readCount: number;
  readonly idleCount: number;
  /** Whether rows remain that may become idle later. */
  readonly hasMore: boolean;
  /** Whether idle rows could not be removed. */
  readonly hasFailed: boolean;
}

const NEW_PASS: Pass = { afterKey: '', readCount: 0, idleCount: 0, hasMore: false, hasFailed: false };

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
    const page = await this.#parts.removePage(pass.afterKey).catch(() => undefined);
    if (this.#isClosed) return;
    if (!page) {
      this.#repeatLater();
      return;
    }
    const next = passAfter(pass, page);
    if (page.rows.length === ROWS_PER_PAGE)
      this.#schedule(pauseMsAfter(page, systemClock.monotonicMs() - startedAtMs), next);
    else this.#end(next);
  }

  #end({ readCount, idleCount, hasMore, hasFailed }: Pass): void {
    const foundFew = readCount > ROWS_PER_PAGE && idleCount * FEW_ONE_IN < readCount;
    const isRare = foundFew || hasFailed;
    if (!isRare) this.#intervals = 1;
    if (!hasMore && !this.#hasGranted) this.#isRunning = false;
    else if (isRare) this.#repeatLater();
    else this.#schedule(this.#intervalMs, NEW_PASS);
  }

  #repeatLater(): void {
    this.#intervals = Math.min(this.#intervals * 2, MAX_INTERVALS);
    this.#schedule(this.#intervalMs * this.#intervals, NEW_PASS);
  }
}

/** The pause after a full page that took so long. The more of its rows were idle, the shorter. */
export const pauseMsAfter = ({ rows }: Page, durationMs: number): number => {
  const idleShare = rows.filter(({ isIdle }) => isIdle).length / rows.length;
  return durationMs * Math.max(MIN_PAUSE_FACTOR, PAUSE_FACTOR * (1 - idleShare));
};

const passAfter = (pass: Pass, { rows, isRemoved }: Page): Pass => ({
  afterKey: rows.at(-1)?.key ?? '',
  readCount: pass.readCount + rows.length,
  idleCount: pass.idleCount + rows.filter(({ isIdle }) => isIdle).length,
  hasMore: pass.hasMore || !isRemoved || rows.some(({ isIdle, isLock }) => isLock && !isIdle),
  hasFailed: pass.hasFailed || !isRemoved,
});

interface IdlePageParts {
  readonly dialect: Pick<Dialect, 'classifyError'>;
  readonly statements: Statements;
  readonly tokenMemoryMs: number;
  readonly pool: ConnectionPool;
}

/** Removes the idle rows among the next ones after this key. Resolves also if that fails, so that the pass can continue. */
export const removeIdlePage = (
  { dialect, statements, tokenMemoryMs, pool }: IdlePageParts,
  afterKey: string,
): Promise<Page> =>
  pool.use('clean-up', new Timeout(CLEAN_UP_TIMEOUT_MS), async (session) => {
    const rows = await statements.readPage(session, afterKey, tokenMemoryMs);
    const idle = rows.filter(({ isIdle }) => isIdle).map(({ key }) => key);
    const remove = () => statements.removeIdle(session, idle, tokenMemoryMs);
    if (idle.length === 0) return { rows, isRemoved: true };
    const isRemoved = await retryWhileBusy(dialect, session.timeout, remove).then(
      () => true,
      () => false,
    );
    return { rows, isRemoved };
  });
