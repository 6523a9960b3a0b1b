import type { LockBackend, LockRecord } from './backend.js';
import type { Clock } from './clock.js';
import { inspectionFailedError } from './error-factories.js';
import { LockError } from './errors.js';
import type { Events } from './events.js';
import { withJson } from './json.js';
import { InFlight } from './requests/in-flight.js';
import { StoreTimeoutError } from './requests/store-timeout-error.js';
import { withTimeout } from './requests/with-timeout.js';
import type { WaitQueues } from './waiting/wait-queues.js';

/** Who holds a key, as the store knows it. As JSON, the fencing token is a text. */
export interface LockInfo {
  readonly key: string;
  readonly holder: string;
  /** The instance that holds it, as named in its module's options. */
  readonly instance: string;
  /** By the store's clock. */
  readonly since: Date;
  readonly remainingMs: number;
  readonly fencingToken: bigint;
  /** How many wait for it in this process. */
  readonly waiting: number;
}

interface LockInspectorParts {
  readonly backend: LockBackend;
  readonly clock: Clock;
  readonly events: Events;
  readonly waitQueues: WaitQueues;
  /** From when on nothing is asked any more. */
  readonly stopping: AbortSignal;
}

const INSPECT_TIMEOUT_MS = 5_000;

/** What the store has on record: who holds a key, and how the runs of a job went. */
export class LockInspector {
  readonly #parts: LockInspectorParts;
  readonly #historyWrites = new InFlight();
  #isClosed = false;

  constructor(parts: LockInspectorParts) {
    this.#parts = parts;
  }

  /** Who holds the key, whichever of the callers of this process it is. */
  async inspectLock(key: string, storeKey: string): Promise<LockInfo | null> {
    const record = await this.readRecord(key, storeKey);
    if (!record) return null;
    const { waitQueues } = this.#parts;
    const { holder, instance, sinceMs, remainingMs } = record;
    // The store knows the first fencing token of a grant, this process which of its callers has it now.
    const grant = waitQueues.grantAt(storeKey);
    const currentLease = grant?.claim.holder === holder ? grant.currentLease : undefined;
    const fencingToken = currentLease?.fencingToken ?? record.fencingToken;
    const waiting = waitQueues.countWaiters(storeKey);
    const since = new Date(sinceMs);
    return withJson({ key, holder, instance, since, remainingMs, fencingToken, waiting });
  }

  readRecord(key: string, storeKey: string): Promise<LockRecord | null> {
    return this.#sendRequest(key, () => this.#parts.backend.inspect(storeKey, INSPECT_TIMEOUT_MS));
  }

  async forceRelease(key: string, storeKey: string, fencingToken: bigint): Promise<boolean> {
    const { backend, waitQueues } = this.#parts;
    // To the store, the callers who have had a grant in turn are one.
    if (waitQueues.grantAt(storeKey)?.hasHandedOff(fencingToken)) return false;
    return this.#sendRequest(key, () => backend.forceRelease(storeKey, fencingToken, INSPECT_TIMEOUT_MS));
  }

  /** Notes how a run of a job goes. What goes wrong is published. */
  async appendHistory(job: string, storeKey: string, entry: string): Promise<void> {
    const { backend, events } = this.#parts;
    if (this.#isClosed) return;
    this.#historyWrites.begin();
    try {
      await backend.appendHistory(storeKey, entry, INSPECT_TIMEOUT_MS);
    } catch (cause) {
      events.emit('unavailable', { key: job, operation: 'note', cause });
    } finally {
      this.#historyWrites.end();
    }
  }

  /** What was noted about the runs of a job, the newest first. */
  readHistory(job: string, storeKey: string): Promise<readonly string[]> {
    return this.#sendRequest(job, () => this.#parts.backend.readHistory(storeKey, INSPECT_TIMEOUT_MS));
  }

  /** Settles when nothing is being noted. */
  whenSettled(): Promise<void> {
    return this.#historyWrites.whenIdle();
  }

  /** Notes nothing from now on. */
  close(): void {
    this.#isClosed = true;
  }

  async #sendRequest<T>(key: string, send: () => Promise<T>): Promise<T> {
    const { clock, stopping } = this.#parts;
    stopping.throwIfAborted();
    try {
      const result = send();
      if (await withTimeout(clock, INSPECT_TIMEOUT_MS, result)) return await result;
    } catch (cause) {
      throw cause instanceof LockError ? cause : inspectionFailedError(key, cause);
    }
    throw inspectionFailedError(key, new StoreTimeoutError(INSPECT_TIMEOUT_MS));
  }
}
