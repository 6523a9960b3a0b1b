import { systemClock } from '../core/clock.js';
import type { EventSource } from '../core/events.js';
import { LockError } from '../core/errors.js';
import { formatReason } from '../core/format.js';
import type { ListOptions } from '../core/list-options.js';
import type { LockList } from '../core/lock-admin.js';
import type { StoreHealthResult } from '../core/store-health.js';
import type { ElectionState, Elections } from '../election/elections.js';
import type { LockService } from '../lock.service.js';
import { describeStoreFailure } from '../core/store-failures.js';
import type { BoardJob, BoardJobs } from './board-jobs.js';
import type { RecentEvent, RecentEvents } from './recent-events.js';

export interface BoardStore extends Omit<StoreHealthResult, 'cause'> {
  readonly latencyMs: number;
  /** Why the store cannot be used. */
  readonly message?: string;
}

/** A page of locks, or why it cannot be read. */
export type BoardLocks = LockList | { readonly error: string };

interface ReaderParts {
  readonly locks: LockService;
  readonly elections: Elections;
  readonly jobs: BoardJobs;
  readonly events: RecentEvents;
}

/** How long a check of the store may take before the page shows that the store is down. */
const CHECK_TIMEOUT_MS = 1_000;

/** Reads what the page shows, from the store and from this process. */
export class BoardReader {
  readonly #parts: ReaderParts;

  constructor(parts: ReaderParts) {
    this.#parts = parts;
  }

  get source(): EventSource {
    return this.#parts.locks.source;
  }

  get events(): readonly RecentEvent[] {
    return this.#parts.events.all;
  }

  /** Never rejects. */
  async readStore(): Promise<BoardStore> {
    const startedMs = systemClock.monotonicMs();
    const { cause, ...health } = await this.#parts.locks.checkStore(CHECK_TIMEOUT_MS);
    const latencyMs = systemClock.monotonicMs() - startedMs;
    return { ...health, latencyMs, ...(health.status === 'down' && { message: describe(cause) }) };
  }

  /** Never rejects: a cursor may be out of date, and the user of the store may lack a right. */
  async readLocks(view: ListOptions): Promise<BoardLocks> {
    try {
      return await this.#parts.locks.list(view);
    } catch (error) {
      return { error: formatReason(error) };
    }
  }

  /** Never rejects. */
  readLeaders(): Promise<readonly ElectionState[]> {
    return this.#parts.elections.readLeaders();
  }

  /** The next {@link readJobs} shows nothing that was read before. */
  forgetJobs(): void {
    this.#parts.jobs.forget();
  }

  /** Never rejects. The job with this key is read now, also if it is not its turn. */
  readJobs(firstKey?: string): Promise<readonly BoardJob[]> {
    return this.#parts.jobs.read(firstKey);
  }
}

const describe = (cause: unknown) =>
  cause instanceof LockError ? cause.message : `The lock store ${describeStoreFailure(cause)}.`;
