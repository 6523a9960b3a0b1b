import { setMaxListeners } from 'node:events';
import type { LockBackend, LockRecord, TickClaim } from './backend.js';
import { type Clock, systemClock } from './clock.js';
import { reentryError, unavailableError } from './error-factories.js';
import { LockShutdownError } from './errors.js';
import type { Events } from './events.js';
import {
  checkKey,
  historyStoreKey,
  jobPartKeyPrefix,
  jobStoreKey,
  leaderStoreKey,
  lockStoreKey,
} from './key.js';
import { Grant } from './leases/grant.js';
import { HeldLocks } from './leases/held-locks.js';
import { Lease } from './leases/lease.js';
import { ReentrantLock } from './leases/reentrant-lock.js';
import { Releaser } from './leases/releaser.js';
import type { Lock } from './lock.js';
import { findLeaseInContext, findLeasesInContext, holdsLockInContext, runWithLock } from './lock-context.js';
import { type LockInfo, LockInspector } from './lock-inspector.js';
import {
  type TransactionSource,
  isInTransaction,
  recordTransaction,
  transactionsOf,
} from './open-transactions.js';
import {
  type AcquireOptions,
  type ResolvedLockOptions,
  type ShutdownOptions,
  checkAcquireOptions,
  resolveLockOptions,
} from './options.js';
import { setImmediate } from './real-time.js';
import { type NotGranted, Acquirer } from './requests/acquirer.js';
import { Batcher } from './requests/batcher.js';
import { StoreTimeoutError } from './requests/store-timeout-error.js';
import { withTimeout } from './requests/with-timeout.js';
import { TimerWheel } from './timer-wheel.js';
import { WaitQueues } from './waiting/wait-queues.js';

interface LocksParts {
  readonly backend: LockBackend;
  readonly namespace: string;
  /** Shown by `inspect()` as the one who holds. */
  readonly instance: string;
  readonly defaults: ResolvedLockOptions;
  readonly events: Events;
}

/** What is asked for when a tick is claimed. */
export interface ClaimTickParams {
  readonly tick: TickClaim;
  readonly leaseMs?: number | undefined;
  readonly storeKey?: string | undefined;
}

const NO_OPTIONS: AcquireOptions = {};
const MAX_FINAL_REQUESTS_MS = 1_000;

/** What one process asks of one backend: locks, claims of ticks, and who holds what. */
export class Locks {
  readonly clock: Clock;
  readonly events: Events;
  readonly #parts: LocksParts;
  readonly #batcher: Batcher;
  readonly #releaser: Releaser;
  readonly #heldLocks: HeldLocks;
  readonly #acquirer: Acquirer;
  readonly #waitQueues: WaitQueues;
  readonly #inspector: LockInspector;
  readonly #timerWheel: TimerWheel;
  readonly #dataSources = new Set<TransactionSource>();
  readonly #stopping = new AbortController();
  readonly #stopListening: readonly ((() => void) | undefined)[];
  /** Settles when those who waited have been sent away. */
  #waitersRejected = Promise.resolve();
  #draining: Promise<readonly string[]> | undefined;
  /** How long the store stays open for work that has itself closed the application. */
  #closingWorkMs: number | undefined;

  constructor(parts: LocksParts) {
    const { backend, events, instance } = parts;
    const clock = backend.clock ?? systemClock;
    const timerWheel = new TimerWheel(clock);
    const batcher = new Batcher({ backend, clock, timerWheel });
    const releaser = new Releaser({ batcher, clock, timerWheel });
    const { maxLeaseMs } = backend;
    const inspect = (storeKey: string, timeoutMs: number) => backend.inspect(storeKey, timeoutMs);
    const heldLocks = new HeldLocks({ clock, timerWheel, events, batcher, releaser, maxLeaseMs, inspect });
    const acquirer = new Acquirer({ clock, events, batcher, releaser });
    const waiterTimerWheel = new TimerWheel(clock, { awaited: true });
    const waitQueues = new WaitQueues({
      clock,
      timerWheel: waiterTimerWheel,
      events,
      acquirer,
      releaser,
      heldLocks,
      instance,
    });
    // Each job that sleeps listens.
    setMaxListeners(0, this.stopping);
    this.clock = clock;
    this.events = events;
    this.#parts = parts;
    this.#batcher = batcher;
    this.#releaser = releaser;
    this.#heldLocks = heldLocks;
    this.#acquirer = acquirer;
    this.#waitQueues = waitQueues;
    this.#inspector = new LockInspector({ backend, clock, events, waitQueues, stopping: this.stopping });
    this.#timerWheel = timerWheel;
    this.#stopListening = [
      backend.onReleased?.((notice) => waitQueues.onReleaseNotice(notice)),
      backend.onServerStatus?.(({ fault, ...status }) => {
        if (fault === undefined) events.emit('server-back', status);
        else events.emit('server-away', { ...status, fault });
      }),
    ];
  }

  get namespace(): string {
    return this.#parts.namespace;
  }

  /** The longest lease that the store can keep, where there is one. */
  get maxLeaseMs(): number | undefined {
    return this.#parts.backend.maxLeaseMs;
  }

  /** How this process is called by `inspect()`. */
  get instance(): string {
    return this.#parts.instance;
  }

  /** Aborts when shutdown begins, with a `LockShutdownError`. */
  get stopping(): AbortSignal {
    return this.#stopping.signal;
  }

  async acquire(key: string, options: AcquireOptions = NO_OPTIONS): Promise<Lease | ReentrantLock> {
    const transactions = transactionsOf(this.#dataSources);
    const lock = await this.#acquire(key, options);
    for (const transaction of transactions) recordTransaction(lock, transaction);
    return lock;
  }

  async #acquire(key: string, options: AcquireOptions): Promise<Lease | ReentrantLock> {
    const { reentrantLock, params } = this.#prepare(key, options);
    return reentrantLock ?? this.#waitQueues.acquire(params);
  }

  async tryAcquire(key: string, options: AcquireOptions = NO_OPTIONS): Promise<Lock | null> {
    const transactions = transactionsOf(this.#dataSources);
    const { reentrantLock, params } = this.#prepare(key, options);
    if (reentrantLock) return reentrantLock;
    const result = await this.#waitQueues.tryAcquire(params);
    if (result instanceof Lease) {
      for (const transaction of transactions) recordTransaction(result, transaction);
      return result;
    }
    if (result.kind === 'unknown') throw unavailableError(key, result.cause);
    return null;
  }

  async withLock<T>(key: string, options: AcquireOptions, work: (lock: Lock) => T | Promise<T>): Promise<T> {
    const isInOpenTransaction = isInTransaction(this.#dataSources);
    const lock = await this.#acquire(key, options);
    if (lock instanceof Lease) {
      if (isInOpenTransaction) this.events.emit('transaction-open', { key, fencingToken: lock.fencingToken });
      return await this.runAndRelease(lock, work);
    }
    try {
      const value = await work(lock);
      lock.throwIfEnded();
      return value;
    } finally {
      await lock.release();
    }
  }

  /** Runs the work under a lock that is held already, and gives it back. */
  runAndRelease<T>(lease: Lease, work: (lock: Lock) => T | Promise<T>): Promise<T> {
    return this.#heldLocks.runAndRelease(lease, this, work);
  }

  /** Has locks that are acquired in an open transaction of this source noticed. Returns how to end that. */
  watchTransactions(source: TransactionSource): () => void {
    this.#dataSources.add(source);
    return () => this.#dataSources.delete(source);
  }

  /** How long to wait for a lock where the caller does not say. */
  get defaultWaitMs(): number {
    return this.#parts.defaults.waitMs;
  }

  /** How long a run of a job lasts unless it is renewed, where the job does not say. */
  get defaultLeaseMs(): number {
    return this.#parts.defaults.leaseMs;
  }

  /**
   * Claims a tick of a job for this process; the lease that comes with it says that the run is on. `storeKey` is that of
   * a part of the job, where such parts may run side by side. Without a tick it claims the run alone.
   */
  async claimTick(
    job: string,
    { tick, leaseMs, storeKey }: Partial<ClaimTickParams>,
  ): Promise<Lease | NotGranted> {
    const { namespace, instance, defaults } = this.#parts;
    const result = await this.#acquirer.claim({
      key: job,
      request: {
        key: storeKey ?? jobStoreKey(namespace, job),
        holder: this.#acquirer.newHolder(),
        leaseMs: leaseMs ?? defaults.leaseMs,
        instance,
        ...(tick && { tick }),
      },
      // A claim is not repeated later, so its answer is worth waiting for.
      waitMs: Infinity,
    });
    if (!(result instanceof Grant)) return result;
    const lease = this.#heldLocks.add(result, { renew: true });
    lease.purpose = 'run';
    return lease;
  }

  /** Whether this asynchronous chain is part of a run of the job. */
  isRunning(job: string): boolean {
    const { namespace } = this.#parts;
    const [jobKey, partKeyPrefix] = [jobStoreKey(namespace, job), jobPartKeyPrefix(namespace, job)];
    return holdsLockInContext(this, (storeKey) => storeKey === jobKey || storeKey.startsWith(partKeyPrefix));
  }

  /** Notes how a run of a job goes. What goes wrong is published. */
  appendHistory(job: string, entry: string): Promise<void> {
    return this.#inspector.appendHistory(job, historyStoreKey(this.#parts.namespace, job), entry);
  }

  /** What was noted about the runs of a job, the newest first. */
  readHistory(job: string): Promise<readonly string[]> {
    return this.#inspector.readHistory(job, historyStoreKey(this.#parts.namespace, job));
  }

  /** Who runs a job, or a part of it, as the store knows it. */
  inspectRun(job: string, storeKey = jobStoreKey(this.#parts.namespace, job)): Promise<LockRecord | null> {
    return this.#inspector.readRecord(job, storeKey);
  }

  /** Stands in line for the leadership of an election, for as long as it takes. */
  async waitForLeadership(
    election: string,
    { leaseMs, signal }: { readonly leaseMs: number; readonly signal: AbortSignal },
  ): Promise<Lease> {
    this.#throwIfStopping();
    signal.throwIfAborted();
    const storeKey = leaderStoreKey(this.#parts.namespace, election);
    const params = { key: election, storeKey, signal, leaseMs, waitMs: Infinity, renew: true };
    const lease = await this.#waitQueues.acquire(params);
    lease.purpose = 'term';
    return lease;
  }

  /** Who leads, as the store knows it. */
  inspectLeader(election: string): Promise<LockInfo | null> {
    return this.#inspector.inspectLock(election, leaderStoreKey(this.#parts.namespace, election));
  }

  /** Whether this asynchronous chain is part of what the leader does. */
  isLeading(election: string): boolean {
    return findLeaseInContext(this, leaderStoreKey(this.#parts.namespace, election)) !== undefined;
  }

  /** Runs the work under a lock that somebody else gives back. */
  async runWithLock<T>(lease: Lease, work: () => T | Promise<T>): Promise<T> {
    return runWithLock({ lease, locks: this, storeKey: lease.claim.key }, work);
  }

  /** Renews it no more: unless it is given back before, it lapses. */
  letLapse(lease: Lease): void {
    this.#heldLocks.letLapse(lease);
  }

  async inspect(key: string): Promise<LockInfo | null> {
    checkKey(key);
    return this.#inspector.inspectLock(key, this.#storeKey(key));
  }

  async forceRelease(key: string, fencingToken: bigint): Promise<boolean> {
    checkKey(key);
    return this.#inspector.forceRelease(key, this.#storeKey(key), fencingToken);
  }

  /** Looks at the store once, for the boot. */
  async check(timeoutMs: number): Promise<void> {
    const checked = this.#parts.backend.check?.(timeoutMs);
    if (checked && !(await withTimeout(this.clock, timeoutMs, checked)))
      throw new StoreTimeoutError(timeoutMs);
  }

  /** What the backend advises; nothing where it does not say so in time. */
  async advice(timeoutMs: number): Promise<string | undefined> {
    const advice = this.#parts.backend.advice?.(timeoutMs).catch(() => undefined);
    return advice && (await withTimeout(this.clock, timeoutMs, advice)) ? advice : undefined;
  }

  /** Asks the store at once whether what this process holds of the key is still ours; if not, it is lost. */
  confirmHeld(key: string): Promise<void> {
    return this.#heldLocks.confirmAll(this.#storeKey(key));
  }

  /** Refuses everybody who asks, and sends away everybody who waits. What is held stays held and renewed. */
  stopGranting(): void {
    if (this.#stopping.signal.aborted) return;
    this.events.emit('shutdown', { phase: 'draining', left: 0 });
    const reason = new LockShutdownError('The application is shutting down: no lock is granted any more.');
    this.#stopping.abort(reason);
    // What was asked for in this same turn of the event loop may still be granted.
    this.#waitersRejected = new Promise((resolve) =>
      setImmediate(() => {
        this.#waitQueues.rejectAll(reason);
        resolve();
      }),
    );
  }

  /** Lets the work under locks end, and answers the keys of those that were not given back. */
  drain(limits: Required<ShutdownOptions>): Promise<readonly string[]> {
    // Work that awaits the end of the application would wait for itself.
    this.#draining ??= this.#drain(limits, findLeasesInContext(this));
    return this.#draining;
  }

  async close(): Promise<void> {
    this.stopGranting();
    this.#waitQueues.rejectAll(this.#stopping.signal.reason);
    if (this.#closingWorkMs === undefined) return this.#end();
    // That work awaits this, so it ends later. Nobody is left to hear how the connections were closed.
    void this.#endAfterWork(this.#closingWorkMs).catch(() => undefined);
  }

  async #endAfterWork(timeoutMs: number): Promise<void> {
    await this.#heldLocks.waitForClosingWork(timeoutMs);
    await withTimeout(this.clock, timeoutMs, this.#inspector.whenSettled(), { awaited: true });
    await this.#end();
  }

  async #end(): Promise<void> {
    this.#inspector.close();
    for (const stop of this.#stopListening) stop?.();
    this.#batcher.close();
    this.#releaser.stop();
    this.#acquirer.close();
    this.#heldLocks.close();
    this.#timerWheel.cancelUnusedTimer();
    await this.#parts.backend.close();
  }

  async #drain(
    { drainMs, abortGraceMs }: Required<ShutdownOptions>,
    ownLeases: readonly Lease[],
  ): Promise<readonly string[]> {
    this.stopGranting();
    const startedAtMs = this.clock.monotonicMs();
    // Or the end could come before they have left the line of the store.
    await this.#waitersRejected;
    // What was asked for before may still be granted: it is then given back, or its work drains with the rest.
    await this.#acquirer.whenSettled(Math.max(drainMs, MAX_FINAL_REQUESTS_MS));
    const leftMs = Math.max(startedAtMs + drainMs - this.clock.monotonicMs(), 0);
    const left = await this.#heldLocks.drain({ drainMs: leftMs, abortGraceMs }, ownLeases);
    if (ownLeases.length > 0) this.#closingWorkMs = Math.max(abortGraceMs, MAX_FINAL_REQUESTS_MS);
    const finalRequests = Promise.all([this.#releaser.whenSettled(), this.#inspector.whenSettled()]);
    await withTimeout(this.clock, MAX_FINAL_REQUESTS_MS, finalRequests, { awaited: true });
    this.events.emit('shutdown', { phase: 'done', left: left.length });
    return left.map((grant) => grant.key);
  }

  #prepare(key: string, options: AcquireOptions) {
    checkKey(key);
    if (options !== NO_OPTIONS) checkAcquireOptions(options, this.maxLeaseMs);
    this.#throwIfStopping();
    const { signal, reentrant = false } = options;
    signal?.throwIfAborted();
    const storeKey = this.#storeKey(key);
    const outer = findLeaseInContext(this, storeKey);
    if (outer?.isLost) outer.throwIfLost();
    const isHeld = outer?.isHeld ?? false;
    if (isHeld && !reentrant) throw reentryError(key);
    return {
      reentrantLock: outer && isHeld ? this.#reenter(outer) : undefined,
      params: { key, storeKey, signal, ...resolveLockOptions(options, this.#parts.defaults) },
    };
  }

  #reenter(outer: Lease): ReentrantLock {
    const { key, fencingToken } = outer;
    return new ReentrantLock(outer, (error) => this.events.emit('lost', { key, fencingToken, error }));
  }

  #storeKey(key: string): string {
    return lockStoreKey(this.#parts.namespace, key);
  }

  #throwIfStopping(): void {
    this.#stopping.signal.throwIfAborted();
  }
}
