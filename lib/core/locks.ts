import { setMaxListeners } from 'node:events';
import type { LockBackend, LockRecord } from './backend.js';
import type { TickClaim, TickState } from './tick.js';
import { type Clock, systemClock } from './clock.js';
import { reentryError, unavailableError } from './error-factories.js';
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
import { ReentrantLock } from './leases/lock-views.js';
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
import { type NotGranted, Acquirer } from './leases/acquirer.js';
import { Batcher } from './requests/batcher.js';
import { StoreTimeoutError } from './requests/store-timeout-error.js';
import { withTimeout } from './requests/with-timeout.js';
import { Shutdown } from './shutdown.js';
import { StoreHealth } from './store-health.js';
import { templateOf } from './template.js';
import { TimerWheel } from './timer-wheel.js';
import { type AcquireTrace, isAcquireTraced, traceAcquire } from './tracing.js';
import { WaitQueues } from './waiting/wait-queues.js';
import type { AcquireParams } from './waiting/waiter.js';

interface LocksParts {
  readonly backend: LockBackend;
  readonly namespace: string;
  /** The name of this process in `inspect()`. */
  readonly instance: string;
  readonly defaults: ResolvedLockOptions;
  readonly events: Events;
}

/** The parameters of a claim of a tick. */
export interface ClaimTickParams {
  readonly tick: TickClaim;
  readonly leaseMs?: number | undefined;
  readonly storeKey?: string | undefined;
}

const NO_OPTIONS: AcquireOptions = {};
const RUN = { purpose: 'run' } as const;

/** The locks of one process on one backend: acquires and releases keys, claims ticks, inspects, and shuts down. */
export class Locks {
  readonly clock: Clock;
  readonly events: Events;
  readonly health: StoreHealth;
  readonly #parts: LocksParts;
  readonly #heldLocks: HeldLocks;
  readonly #acquirer: Acquirer;
  readonly #waitQueues: WaitQueues;
  readonly #inspector: LockInspector;
  readonly #shutdown: Shutdown;
  readonly #dataSources = new Set<TransactionSource>();
  readonly #stopping = new AbortController();

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
      ...{ clock, events, acquirer, releaser, heldLocks, instance },
      timerWheel: waiterTimerWheel,
    });
    // Each sleeping job adds a listener.
    setMaxListeners(0, this.stopping);
    this.clock = clock;
    this.events = events;
    this.health = new StoreHealth({ backend, namespace: parts.namespace, stopping: this.stopping });
    this.#parts = parts;
    this.#heldLocks = heldLocks;
    this.#acquirer = acquirer;
    this.#waitQueues = waitQueues;
    this.#inspector = new LockInspector({ backend, clock, events, waitQueues, stopping: this.stopping });
    this.#shutdown = new Shutdown({
      ...{ backend, clock, events, timerWheel, batcher, releaser, heldLocks, acquirer, waitQueues },
      inspector: this.#inspector,
      stopping: this.#stopping,
      stopListening: listenTo(backend, { events, waitQueues, health: this.health }),
    });
  }

  get namespace(): string {
    return this.#parts.namespace;
  }

  /** The longest lease that the store can keep, if it has a limit. */
  get maxLeaseMs(): number | undefined {
    return this.#parts.backend.maxLeaseMs;
  }

  /** The name of this process in `inspect()`. */
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

  #acquire(key: string, options: AcquireOptions): Promise<Lease> | ReentrantLock {
    const { reentrantLock, params } = this.#prepare(key, options);
    if (reentrantLock) return reentrantLock;
    if (!isAcquireTraced()) return this.#waitQueues.acquire(params);
    return this.#trace(params, (traced) => this.#waitQueues.acquire(traced));
  }

  #trace<T>(params: AcquireParams, acquire: (traced: AcquireParams) => Promise<T>): Promise<T> {
    const { key, label, waitMs, leaseMs } = params;
    const trace: AcquireTrace = {
      ...this.events.source,
      ...{ key, template: label ?? templateOf(key), purpose: 'lock', waitMs, leaseMs, isContended: false },
    };
    return traceAcquire(trace, () => acquire({ ...params, trace }));
  }

  async tryAcquire(key: string, options: AcquireOptions = NO_OPTIONS): Promise<Lock | null> {
    const transactions = transactionsOf(this.#dataSources);
    const { reentrantLock, params } = this.#prepare(key, options);
    if (reentrantLock) return reentrantLock;
    const lease = await (isAcquireTraced()
      ? this.#trace({ ...params, waitMs: 0 }, (traced) => this.#tryAcquire(traced))
      : this.#tryAcquire(params));
    if (lease) for (const transaction of transactions) recordTransaction(lease, transaction);
    return lease;
  }

  async #tryAcquire(params: AcquireParams): Promise<Lease | null> {
    const result = await this.#waitQueues.tryAcquire(params);
    if (result instanceof Lease) return result;
    if (result.kind === 'unknown') throw unavailableError(params.key, result.cause);
    return null;
  }

  async withLock<T>(key: string, options: AcquireOptions, work: (lock: Lock) => T | Promise<T>): Promise<T> {
    const isInOpenTransaction = isInTransaction(this.#dataSources);
    const lock = await this.#acquire(key, options);
    if (lock instanceof Lease) {
      if (isInOpenTransaction)
        this.events.emit('transaction-open', { key, fencingToken: lock.fencingToken }, lock);
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

  /** Runs the work under a lock that is already held, and releases it. */
  runAndRelease<T>(lease: Lease, work: (lock: Lock) => T | Promise<T>): Promise<T> {
    return this.#heldLocks.runAndRelease(lease, () => this.runWithLock(lease, () => work(lease)));
  }

  /**
   * Warns of locks that are acquired in an open transaction of this source. Returns a function that stops the warnings.
   */
  watchTransactions(source: TransactionSource): () => void {
    this.#dataSources.add(source);
    return () => this.#dataSources.delete(source);
  }

  /** The wait of a call without `waitMs`. */
  get defaultWaitMs(): number {
    return this.#parts.defaults.waitMs;
  }

  /** The lease of a job run without `leaseMs`. */
  get defaultLeaseMs(): number {
    return this.#parts.defaults.leaseMs;
  }

  /**
   * Claims a tick of a job for this process. The returned lease lasts as long as the run. Runs that may overlap have a
   * `storeKey` each. Without a `tick`, only the lock of the run is acquired.
   */
  async claimTick(
    job: string,
    { tick, leaseMs, storeKey }: Partial<ClaimTickParams>,
  ): Promise<Lease | NotGranted> {
    const { namespace, instance, defaults } = this.#parts;
    const result = await this.#acquirer.claim({
      key: job,
      ...RUN,
      request: {
        key: storeKey ?? jobStoreKey(namespace, job),
        holder: this.#acquirer.newHolder(),
        leaseMs: leaseMs ?? defaults.leaseMs,
        instance,
        ...(tick && { tick }),
      },
      // A claim is not repeated later, so it gets the longest timeout.
      maxResultWaitMs: Infinity,
    });
    if (!(result instanceof Grant)) return result;
    const startedAtMs = this.clock.monotonicMs();
    return new Lease(this.#heldLocks.add(result, { renew: true }), RUN, { startedAtMs, waitedMs: 0 });
  }

  /** Whether this asynchronous context is part of a run of the job. */
  isRunning(job: string): boolean {
    const { namespace } = this.#parts;
    const [jobKey, partKeyPrefix] = [jobStoreKey(namespace, job), jobPartKeyPrefix(namespace, job)];
    return holdsLockInContext(this, (storeKey) => storeKey === jobKey || storeKey.startsWith(partKeyPrefix));
  }

  /** Adds an entry to the history of a job. Never rejects: a failure is published as `unavailable`. */
  appendHistory(job: string, entry: string): Promise<void> {
    return this.#inspector.appendHistory(job, historyStoreKey(this.#parts.namespace, job), entry);
  }

  /** Returns the history of a job, newest entry first. */
  readHistory(job: string): Promise<readonly string[]> {
    return this.#inspector.readHistory(job, historyStoreKey(this.#parts.namespace, job));
  }

  /** Returns the current run of a job, or of one of its store keys. */
  inspectRun(job: string, storeKey = jobStoreKey(this.#parts.namespace, job)): Promise<LockRecord | null> {
    return this.#inspector.readRecord(job, storeKey);
  }

  /** What the store keeps about the ticks of a job, or of one of its store keys; `undefined` if it does not answer. */
  readTicks(job: string, storeKey = jobStoreKey(this.#parts.namespace, job)): Promise<TickState | undefined> {
    return this.#inspector.readTicks(job, storeKey);
  }

  /** As {@link readTicks}. If no tick was claimed yet, all ticks before now count as claimed from then on. */
  registerTicks(job: string): Promise<TickState | undefined> {
    return this.#inspector.registerTicks(job, jobStoreKey(this.#parts.namespace, job));
  }

  /**
   * Waits for the leadership of an election without a timeout. Rejects with the reason of the signal when it aborts.
   */
  async waitForLeadership(
    election: string,
    { leaseMs, signal }: { readonly leaseMs: number; readonly signal: AbortSignal },
  ): Promise<Lease> {
    this.#throwIfStopping();
    signal.throwIfAborted();
    const storeKey = leaderStoreKey(this.#parts.namespace, election);
    const params = { key: election, storeKey, signal, leaseMs, waitMs: Infinity, renew: true };
    return this.#waitQueues.acquire({ ...params, purpose: 'term' });
  }

  /** Returns the current leader of an election. */
  inspectLeader(election: string): Promise<LockInfo | null> {
    return this.#inspector.inspectLock(election, leaderStoreKey(this.#parts.namespace, election));
  }

  /** Whether this asynchronous context is part of the leader's work. */
  isLeading(election: string): boolean {
    return findLeaseInContext(this, leaderStoreKey(this.#parts.namespace, election)) !== undefined;
  }

  /** Runs the work under a lock that the caller releases. */
  runWithLock<T>(lease: Lease, work: () => T | Promise<T>): Promise<T> {
    return runWithLock({ lease, locks: this, storeKey: lease.claim.key }, work);
  }

  async inspect(key: string): Promise<LockInfo | null> {
    checkKey(key);
    return this.#inspector.inspectLock(key, this.#storeKey(key));
  }

  async forceRelease(key: string, fencingToken: bigint): Promise<boolean> {
    checkKey(key);
    return this.#inspector.forceRelease(key, this.#storeKey(key), fencingToken);
  }

  /**
   * Checks the store once, when the application boots.
   *
   * @throws LockConfigError if no retry can help; any other error if the store does not answer
   */
  async check(timeoutMs: number): Promise<void> {
    const checked = this.#parts.backend.check?.(timeoutMs);
    if (checked && !(await withTimeout(this.clock, timeoutMs, checked)))
      throw new StoreTimeoutError(timeoutMs);
  }

  /** Returns the advice of the backend, or `undefined` if it has none or does not return it in time. */
  async advice(timeoutMs: number): Promise<string | undefined> {
    const advice = this.#parts.backend.advice?.(timeoutMs).catch(() => undefined);
    return advice && (await withTimeout(this.clock, timeoutMs, advice)) ? advice : undefined;
  }

  /** Asks the store at once whether this process still holds the key. If not, the lock is marked as lost. */
  confirmHeld(key: string): Promise<void> {
    return this.#heldLocks.confirmAll(this.#storeKey(key));
  }

  /** Begins the shutdown: rejects waiters and new acquisitions. Held locks stay held and are renewed. */
  stopGranting(): void {
    this.#shutdown.begin();
  }

  /** Waits for the work under locks to end. Returns the keys of the locks that were not released. */
  drain(limits: Required<ShutdownOptions>): Promise<readonly string[]> {
    return this.#shutdown.drain(limits, findLeasesInContext(this));
  }

  /** Ends all requests and closes the backend. */
  close(): Promise<void> {
    return this.#shutdown.close();
  }

  #prepare(key: string, options: AcquireOptions) {
    checkKey(key);
    if (options !== NO_OPTIONS) checkAcquireOptions(options, this.maxLeaseMs);
    this.#throwIfStopping();
    const { signal, reentrant = false, label } = options;
    signal?.throwIfAborted();
    const storeKey = this.#storeKey(key);
    const outer = findLeaseInContext(this, storeKey);
    if (outer?.isLost) outer.throwIfLost();
    const isHeld = outer?.isHeld ?? false;
    if (isHeld && !reentrant) throw reentryError(key);
    return {
      reentrantLock: outer && isHeld ? new ReentrantLock(outer) : undefined,
      params: { key, storeKey, signal, label, ...resolveLockOptions(options, this.#parts.defaults) },
    };
  }

  #storeKey(key: string): string {
    return lockStoreKey(this.#parts.namespace, key);
  }

  #throwIfStopping(): void {
    this.#stopping.signal.throwIfAborted();
  }
}

/** Subscribes to the notices of the backend. Returns the functions that unsubscribe. */
const listenTo = (
  backend: LockBackend,
  { events, waitQueues, health }: Pick<Locks, 'events' | 'health'> & { readonly waitQueues: WaitQueues },
) => [
  backend.onReleased?.((notice) => waitQueues.onReleaseNotice(notice)),
  backend.onServerStatus?.((serverStatus) => {
    health.onServerStatus(serverStatus);
    const { fault, ...status } = serverStatus;
    if (fault === undefined) events.emit('server-back', status);
    else events.emit('server-away', { ...status, fault });
  }),
];
