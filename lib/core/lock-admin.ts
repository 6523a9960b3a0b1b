import type { LockBackend } from './backend.js';
import type { BackendUse } from './backend-use.js';
import type { LockRecord } from './lock-record.js';
import type { LockMode } from './options.js';
import { DEFAULT_LIMIT, type ListOptions } from './list-options.js';
import type { Clock } from './clock.js';
import { changeFailedError, readFailedError } from './error-factories.js';
import { LockError } from './errors.js';
import { withJson } from './json.js';
import { replyWithin } from './requests/store-timeout.js';
import type { WaitQueues } from './waiting/wait-queues.js';

/** The current holder of a key. In JSON, the fencing token is a string. */
export interface LockInfo {
  readonly key: string;
  readonly holder: string;
  /** The process that holds the key: `instance` in the options of its lock module. */
  readonly instance: string;
  /** When the key was granted, by the store's clock. */
  readonly since: Date;
  /** How many ms the lease still lasts, by the store's clock. */
  readonly remainingMs: number;
  readonly fencingToken: bigint;
  /** The number of callers in this process that wait for the key. */
  readonly waiting: number;
  /** The number of waiting acquisitions in the queue of the store. Missing if the store has none, as databases and quorums. */
  readonly queued?: number;
  /** Which permit or slot of the key it holds. Missing for a lock without permits or mode. */
  readonly permit?: number;
  /** Of a key that is read and written: `'write'` also of a writer that still waits for readers. */
  readonly mode?: LockMode;
  /** All holders of a key with permits or a mode, as returned by `inspect()`. */
  readonly holders?: readonly LockInfo[];
}

/** One page of locks. In JSON, the fencing tokens are strings. */
export interface LockList {
  readonly locks: LockInfo[];
  /** Pass it to get the next page. Missing on the last page. */
  readonly cursor?: string;
}

interface LockAdminParts {
  readonly backend: LockBackend;
  readonly backendUse: BackendUse;
  readonly clock: Clock;
  readonly waitQueues: WaitQueues;
  /** After it has aborted, requests reject with its reason. */
  readonly stopping: AbortSignal;
}

/** The timeout of requests that are sent one by one. */
export const INSPECT_TIMEOUT_MS = 5_000;
/** Only so that a backend that never answers does not keep its caller for ever. */
const MAX_FINAL_CHANGE_MS = 600_000;

/** Reads the holders of keys from the store, and releases keys by force. */
export class LockAdmin {
  readonly #parts: LockAdminParts;

  constructor(parts: LockAdminParts) {
    this.#parts = parts;
  }

  /**
   * Returns the holder of the key, or `null` if it is free. If this process holds it, the fencing token is that of the
   * caller that has the lock now.
   *
   * @throws LockUnavailableError if the store does not answer
   */
  async inspectLock(key: string, storeKey: string): Promise<LockInfo | null> {
    const record = await this.readRecord(key, storeKey);
    return record && this.#describe(key, storeKey, record);
  }

  /**
   * Returns a page of the held locks whose keys start with the prefix. `storePrefix` is what the store has before each key.
   *
   * @throws LockUnavailableError if the store does not answer
   * @throws LockConfigError if the cursor is not one of this store
   */
  async listLocks(
    { prefix = '', limit = DEFAULT_LIMIT, cursor }: ListOptions,
    storePrefix: string,
  ): Promise<LockList> {
    const request = { prefix: storePrefix + prefix, cursor, limit };
    const page = await this.request(prefix, (timeoutMs) => this.#parts.backend.list(request, timeoutMs));
    const locks = page.locks.map((record) =>
      this.#describe(record.key.slice(storePrefix.length), record.key, record),
    );
    return page.cursor === undefined ? { locks } : { locks, cursor: page.cursor };
  }

  #describe(key: string, storeKey: string, record: LockRecord): LockInfo {
    const { waitQueues } = this.#parts;
    const { holder, instance, sinceMs, queued } = record;
    // A store may measure in µs.
    const remainingMs = Math.ceil(record.remainingMs);
    // The store knows only the first fencing token of a grant. This process knows the token of its current caller.
    const grant = waitQueues.grantAt(storeKey);
    const fencingToken = grant?.request.holder === holder ? grant.currentToken : record.fencingToken;
    const waiting = waitQueues.countWaiters(storeKey);
    const since = new Date(sinceMs);
    const info = { key, holder, instance, since, remainingMs, fencingToken, waiting };
    return withJson(queued === undefined ? info : { ...info, queued });
  }

  readRecord(key: string, storeKey: string): Promise<LockRecord | null> {
    return this.request(key, (timeoutMs) => this.#parts.backend.inspect(storeKey, timeoutMs));
  }

  async forceRelease(key: string, storeKey: string, fencingToken: bigint): Promise<boolean> {
    const { backend, waitQueues } = this.#parts;
    // The store cannot distinguish the callers that used one grant in turn. An earlier one must not release the current.
    if (waitQueues.grantAt(storeKey)?.hasHandedOff(fencingToken)) return false;
    return this.requestChange(key, (timeoutMs) => backend.forceRelease(storeKey, fencingToken, timeoutMs));
  }

  /**
   * Reads outside of the batches.
   *
   * @throws LockUnavailableError if the store does not answer; after `stopping` has aborted, its reason
   */
  request<T>(key: string, send: (timeoutMs: number) => Promise<T>): Promise<T> {
    return this.#request(send, (cause) => readFailedError(key, cause));
  }

  /** Like {@link request}, for a request that changes something. */
  requestChange<T>(key: string, send: (timeoutMs: number) => Promise<T>): Promise<T> {
    return this.#request(send, (cause) => changeFailedError(key, cause));
  }

  /**
   * Like {@link requestChange}, for a change that could undo a later one. The backend rejects only once it takes no effect any
   * more, which may be later than its timeout.
   */
  requestFinalChange<T>(key: string, send: (timeoutMs: number) => Promise<T>): Promise<T> {
    return this.#request(send, (cause) => changeFailedError(key, cause), MAX_FINAL_CHANGE_MS);
  }

  async #request<T>(
    send: (timeoutMs: number) => Promise<T>,
    toError: (cause: unknown) => LockError,
    maxWaitMs = INSPECT_TIMEOUT_MS,
  ): Promise<T> {
    const { backendUse, clock, stopping } = this.#parts;
    stopping.throwIfAborted();
    backendUse.begin();
    try {
      return await replyWithin(clock, maxWaitMs, () => send(INSPECT_TIMEOUT_MS));
    } catch (cause) {
      throw cause instanceof LockError ? cause : toError(cause);
    }
  }
}
