import type { LockBackend } from './backend.js';
import type { LockRecord } from './lock-record.js';
import type { Clock } from './clock.js';
import type { Events } from './events.js';
import { historyStoreKey, jobPartKeyPrefix, jobStoreKey } from './store-key.js';
import type { Acquirer, NotGranted } from './leases/acquirer.js';
import { Grant } from './leases/grant.js';
import type { HeldLocks } from './leases/held-locks.js';
import { LockHandle } from './leases/lock-handle.js';
import { holdsLockInContext } from './lock-context.js';
import { INSPECT_TIMEOUT_MS, type LockAdmin } from './lock-admin.js';
import type { ResolvedLockOptions } from './options.js';
import { InFlight } from './requests/in-flight.js';
import { replyWithin } from './requests/store-timeout.js';
import type { TickClaim, TickState } from './tick.js';

interface JobLocksParts {
  readonly backend: LockBackend;
  readonly namespace: string;
  readonly instance: string;
  readonly defaults: ResolvedLockOptions;
  readonly clock: Clock;
  readonly events: Events;
  readonly acquirer: Acquirer;
  readonly heldLocks: HeldLocks;
  readonly lockAdmin: LockAdmin;
  /** Stands for the locks of this process in lock contexts. */
  readonly locks: object;
  readonly stopping: AbortSignal;
}

/** The parameters of a claim of a tick. */
export interface ClaimTickParams {
  readonly tick: TickClaim;
  readonly leaseMs?: number | undefined;
  readonly storeKey?: string | undefined;
}

/** Events of a job are counted as those of a run. */
const RUN = { purpose: 'run' } as const;

/** What jobs keep in the store: the locks of their runs, their newest ticks, and the history of their runs. */
export class JobLocks {
  readonly #parts: JobLocksParts;
  readonly #claims = new InFlight();
  readonly #historyWrites = new InFlight();
  #isClosed = false;

  constructor(parts: JobLocksParts) {
    this.#parts = parts;
  }

  /**
   * Claims a tick of a job for this process. The returned lease lasts as long as the run. Runs that may overlap have a
   * `storeKey` each. Without a `tick`, only the lock of the run is acquired.
   */
  async claimTick(job: string, params: Partial<ClaimTickParams>): Promise<LockHandle | NotGranted> {
    this.#claims.begin();
    try {
      return await this.#claimTick(job, params);
    } finally {
      this.#claims.end();
    }
  }

  async #claimTick(
    job: string,
    { tick, leaseMs, storeKey = this.#storeKey(job) }: Partial<ClaimTickParams>,
  ): Promise<LockHandle | NotGranted> {
    const { clock, acquirer, heldLocks, instance, defaults } = this.#parts;
    const result = await acquirer.claim({
      key: job,
      ...RUN,
      request: {
        key: storeKey,
        holder: acquirer.newHolder(),
        leaseMs: leaseMs ?? defaults.leaseMs,
        instance,
        ...(tick && { tick }),
      },
      // A claim is not repeated later, so it gets the longest timeout.
      maxResultWaitMs: Infinity,
    });
    if (!(result instanceof Grant)) return result;
    const startedAtMs = clock.monotonicMs();
    return new LockHandle(heldLocks.add(result, { renew: true }), RUN, { startedAtMs, waitedMs: 0 });
  }

  /** Whether this asynchronous context is part of a run of the job. */
  isRunning(job: string): boolean {
    const jobKey = this.#storeKey(job);
    const partKeyPrefix = jobPartKeyPrefix(this.#parts.namespace, job);
    return holdsLockInContext(
      this.#parts.locks,
      (storeKey) => storeKey === jobKey || storeKey.startsWith(partKeyPrefix),
    );
  }

  /** Returns the current run of a job, or of one of its store keys. */
  inspectRun(job: string, storeKey = this.#storeKey(job)): Promise<LockRecord | null> {
    return this.#parts.lockAdmin.readRecord(job, storeKey);
  }

  /**
   * What the store keeps about the ticks of a job, or of one of its store keys. `undefined` if the store does not answer,
   * which is then published as `unavailable`.
   */
  tryReadTicks(job: string, storeKey = this.#storeKey(job)): Promise<TickState | undefined> {
    return this.#tryToRead(job, (timeoutMs) => this.#parts.backend.readTicks(storeKey, timeoutMs));
  }

  /** As {@link tryReadTicks}. If no tick was claimed yet, all ticks before now count as claimed from then on. */
  registerTicks(job: string): Promise<TickState | undefined> {
    const storeKey = this.#storeKey(job);
    return this.#tryToRead(job, (timeoutMs) => this.#parts.backend.registerTicks(storeKey, timeoutMs));
  }

  /**
   * As {@link tryReadTicks}, but rejects.
   *
   * @throws LockUnavailableError if the store cannot be reached
   */
  readTicks(job: string, storeKey = this.#storeKey(job)): Promise<TickState> {
    return this.#parts.lockAdmin.request(job, (timeoutMs) =>
      this.#parts.backend.readTicks(storeKey, timeoutMs),
    );
  }

  /**
   * Pauses or resumes the ticks of a job in the whole cluster.
   *
   * @throws LockUnavailableError if the store cannot be reached; only once the call takes no effect any more
   */
  setPaused(job: string, isPaused: boolean): Promise<void> {
    const storeKey = this.#storeKey(job);
    return this.#parts.lockAdmin.requestFinalChange(job, (timeoutMs) =>
      this.#parts.backend.setPaused(storeKey, isPaused, timeoutMs),
    );
  }

  /** Returns the history of a job, newest entry first. */
  readHistory(job: string): Promise<readonly string[]> {
    const storeKey = historyStoreKey(this.#parts.namespace, job);
    return this.#parts.lockAdmin.request(job, (timeoutMs) =>
      this.#parts.backend.readHistory(storeKey, timeoutMs),
    );
  }

  /** Adds an entry to the history of a job. Never rejects: a failure is published as `unavailable`. */
  async appendHistory(job: string, entry: string): Promise<void> {
    const { backend, events, namespace } = this.#parts;
    if (this.#isClosed) return;
    this.#historyWrites.begin();
    try {
      await backend.appendHistory(historyStoreKey(namespace, job), entry, INSPECT_TIMEOUT_MS);
    } catch (cause) {
      events.emit('unavailable', { key: job, operation: 'append-history', cause }, RUN);
    } finally {
      this.#historyWrites.end();
    }
  }

  /** Resolves when no claim is in progress: the runs of those that were granted are held locks by then. */
  whenClaimed(): Promise<void> {
    return this.#claims.whenIdle();
  }

  /** Resolves when all history entries are written or have failed. */
  whenRecorded(): Promise<void> {
    return this.#historyWrites.whenIdle();
  }

  /** Writes no history entries from now on. */
  close(): void {
    this.#isClosed = true;
  }

  #storeKey(job: string): string {
    return jobStoreKey(this.#parts.namespace, job);
  }

  async #tryToRead(
    job: string,
    send: (timeoutMs: number) => Promise<TickState>,
  ): Promise<TickState | undefined> {
    const { clock, events, stopping } = this.#parts;
    if (stopping.aborted) return undefined;
    try {
      return await replyWithin(clock, INSPECT_TIMEOUT_MS, send);
    } catch (cause) {
      events.emit('unavailable', { key: job, operation: 'read-ticks', cause }, RUN);
      return undefined;
    }
  }
}
