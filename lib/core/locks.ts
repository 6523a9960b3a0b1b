import type { Clock } from './clock.js';
import { type Engine, type EngineOptions, createEngine } from './engine.js';
import { reentryError, unavailableError } from './error-factories.js';
import type { Events } from './events.js';
import type { JobLocks } from './job-locks.js';
import { checkKey, leaderStoreKey, lockStoreKey } from './key.js';
import { Lease } from './leases/lease.js';
import { ReentrantLock } from './leases/lock-views.js';
import type { Lock } from './lock.js';
import { findLeaseInContext, findLeasesInContext, runInLockContext } from './lock-context.js';
import { type ListOptions, checkListOptions } from './list-options.js';
import type { LockInfo, LockList } from './lock-inspector.js';
import {
  type TransactionSource,
  isInTransaction,
  recordTransaction,
  transactionsOf,
} from './open-transactions.js';
import {
  type AcquireOptions,
  type LeaseLimits,
  type ShutdownOptions,
  checkAcquireOptions,
  resolveLockOptions,
} from './options.js';
import { replyWithin, withTimeout } from './requests/store-timeout.js';
import type { StoreHealth } from './store-health.js';
import { createAcquireTrace, isAcquireTraced, traceAcquire } from './tracing.js';
import type { AcquireParams } from './waiting/waiter.js';

/** An acquisition whose key and options were checked. */
interface Prepared {
  readonly reentrantLock: ReentrantLock | undefined;
  readonly params: AcquireParams;
}

const NO_OPTIONS: AcquireOptions = {};

/** The locks of one process on one backend: acquires and releases keys, elects leaders, inspects, and shuts down. */
export class Locks {
  readonly clock: Clock;
  readonly events: Events;
  readonly health: StoreHealth;
  readonly jobs: JobLocks;
  readonly #options: EngineOptions;
  readonly #engine: Engine;
  readonly #dataSources = new Set<TransactionSource>();

  constructor(options: EngineOptions) {
    this.#options = options;
    this.#engine = createEngine(options, this);
    this.clock = this.#engine.clock;
    this.events = options.events;
    this.jobs = this.#engine.jobs;
    this.health = this.#engine.health;
  }

  get namespace(): string {
    return this.#options.namespace;
  }

  /** The shortest and the longest lease of the store. */
  get leaseLimits(): LeaseLimits {
    return this.#options.backend;
  }

  /** The name of this process in `inspect()`. */
  get instance(): string {
    return this.#options.instance;
  }

  /** Aborts when shutdown begins, with a `LockShutdownError`. */
  get stopping(): AbortSignal {
    return this.#engine.stopping.signal;
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
    if (!isAcquireTraced()) return this.#engine.waitQueues.acquire(params);
    const trace = createAcquireTrace(this.events.source, params);
    // The events of this lock then need not compute the template again.
    const traced = Object.assign(params, { trace, label: trace.template });
    return traceAcquire(trace, () => this.#engine.waitQueues.acquire(traced));
  }

  async tryAcquire(key: string, options: AcquireOptions = NO_OPTIONS): Promise<Lock | null> {
    const transactions = transactionsOf(this.#dataSources);
    const { reentrantLock, params } = this.#prepare(key, options);
    if (reentrantLock) return reentrantLock;
    const trace = isAcquireTraced() && createAcquireTrace(this.events.source, { ...params, waitMs: 0 });
    const acquire = () => this.#tryAcquire(params);
    const lease = await (trace ? traceAcquire(trace, acquire) : acquire());
    if (lease) for (const transaction of transactions) recordTransaction(lease, transaction);
    return lease;
  }

  async #tryAcquire(params: AcquireParams): Promise<Lease | null> {
    const result = await this.#engine.waitQueues.tryAcquire(params);
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
    return this.#engine.heldLocks.runAndRelease(lease, () => this.runWithLock(lease, () => work(lease)));
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
    return this.#options.defaults.waitMs;
  }

  /** The lease of a job run without `leaseMs`. */
  get defaultLeaseMs(): number {
    return this.#options.defaults.leaseMs;
  }

  /**
   * Waits for the leadership of an election without a timeout. Rejects with the reason of the signal when it aborts.
   */
  async waitForLeadership(
    election: string,
    { leaseMs, signal }: { readonly leaseMs: number; readonly signal: AbortSignal },
  ): Promise<Lease> {
    this.stopping.throwIfAborted();
    signal.throwIfAborted();
    const storeKey = leaderStoreKey(this.#options.namespace, election);
    const params = { key: election, storeKey, signal, leaseMs, waitMs: Infinity, renew: true };
    return this.#engine.waitQueues.acquire({ ...params, purpose: 'term' });
  }

  /** Returns the current leader of an election. */
  inspectLeader(election: string): Promise<LockInfo | null> {
    return this.#engine.inspector.inspectLock(election, leaderStoreKey(this.#options.namespace, election));
  }

  /** Whether this asynchronous context is part of the leader's work. */
  isLeading(election: string): boolean {
    return findLeaseInContext(this, leaderStoreKey(this.#options.namespace, election)) !== undefined;
  }

  /** Runs the work under a lock that the caller releases. */
  runWithLock<T>(lease: Lease, work: () => T | Promise<T>): Promise<T> {
    return runInLockContext({ lease, locks: this, storeKey: lease.acquisition.key }, work);
  }

  async inspect(key: string): Promise<LockInfo | null> {
    checkKey(key);
    return this.#engine.inspector.inspectLock(key, this.#storeKey(key));
  }

  async list(options: ListOptions): Promise<LockList> {
    checkListOptions(options);
    return this.#engine.inspector.listLocks(options, this.#storeKey(''));
  }

  async forceRelease(key: string, fencingToken: bigint): Promise<boolean> {
    checkKey(key);
    return this.#engine.inspector.forceRelease(key, this.#storeKey(key), fencingToken);
  }

  /**
   * Checks the store once, when the application boots.
   *
   * @throws LockConfigError if no retry can help; any other error if the store does not answer
   */
  async check(timeoutMs: number): Promise<void> {
    await replyWithin(this.clock, timeoutMs, async () => this.#options.backend.check?.(timeoutMs));
  }

  /** Returns the advice of the backend, or `undefined` if it has none or does not return it in time. */
  async advice(timeoutMs: number): Promise<string | undefined> {
    const advice = this.#options.backend.advice?.(timeoutMs).catch(() => undefined);
    return advice && (await withTimeout(this.clock, timeoutMs, advice)) ? advice : undefined;
  }

  /** Asks the store at once whether this process still holds the key. If not, the lock is marked as lost. */
  confirmHeld(key: string): Promise<void> {
    return this.#engine.heldLocks.confirmAll(this.#storeKey(key));
  }

  /** Begins the shutdown: rejects waiters and new acquisitions. Held locks stay held and are renewed. */
  stopGranting(): void {
    this.#engine.shutdown.begin();
  }

  /** Waits for the work under locks to end. Returns the keys of the locks that were not released. */
  drain(limits: Required<ShutdownOptions>): Promise<readonly string[]> {
    return this.#engine.shutdown.drain(limits, findLeasesInContext(this));
  }

  /** Ends all requests and closes the backend. */
  close(): Promise<void> {
    return this.#engine.shutdown.close();
  }

  #prepare(key: string, options: AcquireOptions): Prepared {
    checkKey(key);
    if (options !== NO_OPTIONS) checkAcquireOptions(options, this.leaseLimits);
    this.stopping.throwIfAborted();
    const { signal, reentrant = false, label } = options;
    signal?.throwIfAborted();
    const storeKey = this.#storeKey(key);
    const outer = findLeaseInContext(this, storeKey);
    if (outer?.isLost) outer.throwIfLost();
    const isHeld = outer?.isHeld ?? false;
    if (isHeld && !reentrant) throw reentryError(key);
    return {
      reentrantLock: outer && isHeld ? new ReentrantLock(outer) : undefined,
      params: { key, storeKey, signal, label, ...resolveLockOptions(options, this.#options.defaults) },
    };
  }

  #storeKey(key: string): string {
    return lockStoreKey(this.#options.namespace, key);
  }
}
