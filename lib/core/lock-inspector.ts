import type { LockBackend, LockRecord } from './backend.js';
import type { TickState } from './tick.js';
import type { Clock } from './clock.js';
import { inspectionFailedError } from './error-factories.js';
import { LockError } from './errors.js';
import type { Events } from './events.js';
import { withJson } from './json.js';
import { InFlight } from './requests/in-flight.js';
import { StoreTimeoutError } from './requests/store-timeout-error.js';
import { withTimeout } from './requests/with-timeout.js';
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
}

interface LockInspectorParts {
  readonly backend: LockBackend;
  readonly clock: Clock;
  readonly events: Events;
  readonly waitQueues: WaitQueues;
  /** After it has aborted, requests reject with its reason. */
  readonly stopping: AbortSignal;
}

const INSPECT_TIMEOUT_MS = 5_000;

const JOB = { purpose: 'run' } as const;

/** Reads the holders of keys and the history of jobs from the store, and releases keys by force. */
export class LockInspector {
  readonly #parts: LockInspectorParts;
  readonly #historyWrites = new InFlight();
  #isClosed = false;

  constructor(parts: LockInspectorParts) {
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
    if (!record) return null;
    const { waitQueues } = this.#parts;
    const { holder, instance, sinceMs, remainingMs } = record;
    // The store knows only the first fencing token of a grant. This process knows the token of its current caller.
    const grant = waitQueues.grantAt(storeKey);
    const fencingToken = grant?.claim.holder === holder ? grant.currentToken : record.fencingToken;
    const waiting = waitQueues.countWaiters(storeKey);
    const since = new Date(sinceMs);
    return withJson({ key, holder, instance, since, remainingMs, fencingToken, waiting });
  }

  readRecord(key: string, storeKey: string): Promise<LockRecord | null> {
    return this.#sendRequest(key, () => this.#parts.backend.inspect(storeKey, INSPECT_TIMEOUT_MS));
  }

  async forceRelease(key: string, storeKey: string, fencingToken: bigint): Promise<boolean> {
    const { backend, waitQueues } = this.#parts;
    // The store cannot distinguish the callers that used one grant in turn. An earlier one must not release the current.
    if (waitQueues.grantAt(storeKey)?.hasHandedOff(fencingToken)) return false;
    return this.#sendRequest(key, () => backend.forceRelease(storeKey, fencingToken, INSPECT_TIMEOUT_MS));
  }

  /** Resolves with `undefined` if the store does not answer, which is then published as `unavailable`. */
  async readTicks(job: string, storeKey: string): Promise<TickState | undefined> {
    return this.#readTicks(job, () => this.#parts.backend.readTicks(storeKey, INSPECT_TIMEOUT_MS));
  }

  /** As {@link readTicks}; also registers the job if none of its ticks was claimed yet. */
  async registerTicks(job: string, storeKey: string): Promise<TickState | undefined> {
    return this.#readTicks(job, () => this.#parts.backend.registerTicks(storeKey, INSPECT_TIMEOUT_MS));
  }

  async #readTicks(key: string, send: () => Promise<TickState>): Promise<TickState | undefined> {
    const { events, stopping } = this.#parts;
    if (stopping.aborted) return undefined;
    try {
      return await this.#send(send);
    } catch (cause) {
      events.emit('unavailable', { key, operation: 'claim-tick', cause }, JOB);
      return undefined;
    }
  }

  /** Adds an entry to the history of a job. Never rejects: a failure is published as `unavailable`. */
  async appendHistory(job: string, storeKey: string, entry: string): Promise<void> {
    const { backend, events } = this.#parts;
    if (this.#isClosed) return;
    this.#historyWrites.begin();
    try {
      await backend.appendHistory(storeKey, entry, INSPECT_TIMEOUT_MS);
    } catch (cause) {
      events.emit('unavailable', { key: job, operation: 'note', cause }, JOB);
    } finally {
      this.#historyWrites.end();
    }
  }

  /** Returns the history of a job, newest entry first. */
  readHistory(job: string, storeKey: string): Promise<readonly string[]> {
    return this.#sendRequest(job, () => this.#parts.backend.readHistory(storeKey, INSPECT_TIMEOUT_MS));
  }

  /** Resolves when all history entries are written or have failed. */
  whenSettled(): Promise<void> {
    return this.#historyWrites.whenIdle();
  }

  /** Writes no history entries from now on. */
  close(): void {
    this.#isClosed = true;
  }

  async #sendRequest<T>(key: string, send: () => Promise<T>): Promise<T> {
    this.#parts.stopping.throwIfAborted();
    try {
      return await this.#send(send);
    } catch (cause) {
      throw cause instanceof LockError ? cause : inspectionFailedError(key, cause);
    }
  }

  async #send<T>(send: () => Promise<T>): Promise<T> {
    const result = send();
    if (await withTimeout(this.#parts.clock, INSPECT_TIMEOUT_MS, result)) return await result;
    throw new StoreTimeoutError(INSPECT_TIMEOUT_MS);
  }
}
