import type { Clock } from './clock.js';
import { type Engine, type EngineOptions, createEngine } from './engine.js';
import { unavailableError } from './error-factories.js';
import type { Events } from './events.js';
import type { JobLocks } from './job-locks.js';
import { type LockKey, checkKey } from './key.js';
import { healthStoreKey, lockStoreKey } from './store-key.js';
import { LockKinds } from './kinds/lock-kinds.js';
import type { LeaderLocks } from './leader-locks.js';
import { LockHandle } from './leases/lock-handle.js';
import { ReentrantLock } from './leases/lock-views.js';
import type { InternalLock } from './leases/internal-lock.js';
import type { Lock } from './lock.js';
import { findLocksInContext, findOuterLock, runInLockContext } from './lock-context.js';
import { type ListOptions, checkListOptions } from './list-options.js';
import type { LockInfo, LockList } from './lock-admin.js';
import type { LockOrder } from './lock-order.js';
import { type TransactionSource, recordTransaction, transactionsOf } from './open-transactions.js';
import {
  type AcquireOptions,
  type LeaseLimits,
  type ShutdownOptions,
  checkAcquireOptions,
  resolveLockOptions,
} from './options.js';
import { RecognisedAcrossCopies } from './package-copies.js';
import { replyWithin, withTimeout } from './requests/store-timeout.js';
import type { StoreHealth } from './store-health.js';
import { createAcquireTrace, isAcquireTraced, traceAcquire } from './tracing-channels.js';
import type { AcquireParams } from './waiting/waiter.js';

/** An acquisition whose key and options were checked. */
interface Prepared {
  readonly reentrantLock: ReentrantLock | undefined;
  readonly params: AcquireParams;
}

const NO_OPTIONS: AcquireOptions = {};

/** A lock of one key that one holder has at a time. */
const isPlain = (key: LockKey, options: AcquireOptions | null): key is string =>
  options?.permits === undefined && options?.mode === undefined && !Array.isArray(key);

/** The locks of one process on one backend: acquires and releases keys, elects leaders, inspects, and shuts down. */
@RecognisedAcrossCopies('Locks')
export class Locks {
  readonly clock: Clock;
  readonly events: Events;
  readonly health: StoreHealth;
  readonly jobs: JobLocks;
  readonly lockOrder: LockOrder | undefined;
  readonly leaders: LeaderLocks;
  readonly #options: EngineOptions;
  readonly #engine: Engine;
  readonly #kinds: LockKinds;
  readonly #dataSources = new Set<TransactionSource>();

  constructor(options: EngineOptions) {
    this.#options = options;
    this.#engine = createEngine(options, this);
    this.clock = this.#engine.clock;
    this.events = options.events;
    this.jobs = this.#engine.jobs;
    this.leaders = this.#engine.leaders;
    this.health = this.#engine.health;
    this.lockOrder = this.#engine.lockOrder;
    this.#kinds = new LockKinds({ ...options, ...this.#engine, locks: this });
  }

  get namespace(): string {
    return this.#options.namespace;
  }

  /** The shortest and the longest lease of the store. */
  get leaseLimits(): LeaseLimits {
    return this.#options.backend;
  }

  /** The name of this process, as others see it in the store, in events and in the history. */
  get instance(): string {
    return this.#options.instance;
  }

  /** Aborts when shutdown begins, with a `LockShutdownError`. */
  get stopping(): AbortSignal {
    return this.#engine.stopController.signal;
  }

  async acquire(key: LockKey, options: AcquireOptions = NO_OPTIONS): Promise<InternalLock | ReentrantLock> {
    const transactions = transactionsOf(this.#dataSources);
    const lock = await this.#acquire(key, options);
    for (const transaction of transactions) recordTransaction(lock, transaction);
    return lock;
  }

  #acquire(key: LockKey, options: AcquireOptions): Promise<InternalLock | ReentrantLock> | ReentrantLock {
    if (!isPlain(key, options)) return this.#kinds.acquire(key, this.#check(options));
    const { reentrantLock, params } = this.#prepare(key, options);
    if (reentrantLock) return reentrantLock;
    this.lockOrder?.check([key], params);
    if (!isAcquireTraced()) return this.#engine.waitQueues.acquire(params);
    const trace = createAcquireTrace(this.events.source, params);
    // The events of this lock then need not compute the template again.
    const traced = Object.assign(params, { trace, label: trace.template });
    return traceAcquire(trace, () => this.#engine.waitQueues.acquire(traced));
  }

  async tryAcquire(key: LockKey, options: AcquireOptions = NO_OPTIONS): Promise<Lock | null> {
    const transactions = transactionsOf(this.#dataSources);
    const lock = await this.#tryAcquire(key, options);
    if (lock) for (const transaction of transactions) recordTransaction(lock, transaction);
    return lock;
  }

  #tryAcquire(key: LockKey, options: AcquireOptions): Promise<Lock | null> | Lock {
    if (!isPlain(key, options)) return this.#kinds.tryAcquire(key, this.#check(options));
    const { reentrantLock, params } = this.#prepare(key, options);
    if (reentrantLock) return reentrantLock;
    const trace = isAcquireTraced() && createAcquireTrace(this.events.source, { ...params, waitMs: 0 });
    return trace ? traceAcquire(trace, () => this.#ask(params)) : this.#ask(params);
  }

  async #ask(params: AcquireParams): Promise<LockHandle | null> {
    const result = await this.#engine.waitQueues.tryAcquire(params);
    if (result instanceof LockHandle) return result;
    if (result.kind === 'unknown') throw unavailableError(params.key, result.cause);
    return null;
  }

  async withLock<T>(key: LockKey, options: AcquireOptions, work: (lock: Lock) => T | Promise<T>): Promise<T> {
    const { isInTransaction } = this;
    const lock = await this.#acquire(key, options);
    if (!(lock instanceof ReentrantLock)) {
      if (isInTransaction)
        this.events.emit('transaction-open', { key: lock.key, fencingToken: lock.eventToken }, lock);
      return await this.runAndRelease(lock, work);
    }
    try {
      const value = await runInLockContext({ lock: lock.outer, view: lock, locks: this }, () => work(lock));
      lock.throwIfEnded();
      return value;
    } finally {
      await lock.release();
    }
  }

  /** Runs the work under a lock that is already held, and releases it. */
  runAndRelease<T>(lock: InternalLock, work: (lock: Lock) => T | Promise<T>): Promise<T> {
    return this.#engine.heldLocks.runAndRelease(lock, () => this.runWithLock(lock, () => work(lock)));
  }

  /** Whether the caller is in an open transaction: a lock that it acquires now is released before COMMIT. */
  get isInTransaction(): boolean {
    return transactionsOf(this.#dataSources).length > 0;
  }

  /** Warns of locks that are acquired in an open transaction of this source. Returns a function that ends this. */
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

  /** Runs the work under a lock that the caller releases. */
  runWithLock<T>(lock: InternalLock, work: () => T | Promise<T>): Promise<T> {
    return runInLockContext({ lock, locks: this }, work);
  }

  async inspect(key: string): Promise<LockInfo | null> {
    checkKey(key);
    return this.#kinds.inspector.inspect(key);
  }

  async list(options: ListOptions): Promise<LockList> {
    checkListOptions(options);
    return this.#kinds.inspector.list(options);
  }

  async forceRelease(key: string, fencingToken: bigint, permit?: number): Promise<boolean> {
    checkKey(key);
    return this.#kinds.inspector.forceRelease(key, fencingToken, permit);
  }

  /**
   * Checks the store once, when the application boots.
   *
   * @throws LockConfigError if no retry can help; any other error if the store does not answer
   */
  async check(timeoutMs: number): Promise<void> {
    const key = healthStoreKey(this.namespace);
    await replyWithin(this.clock, timeoutMs, async () => this.#options.backend.check?.(timeoutMs, key));
  }

  /** Returns the advice of the backend, or `undefined` if it has none or does not return it in time. */
  async advice(timeoutMs: number): Promise<string | undefined> {
    const advice = this.#options.backend.advice?.(timeoutMs).catch(() => undefined);
    return advice && (await withTimeout(this.clock, timeoutMs, advice)) ? advice : undefined;
  }

  /** Asks the store at once whether this process still holds the key. If not, the lock is marked as lost. */
  confirmHeld(key: string): Promise<void> {
    return this.#engine.heldLocks.confirmAll((storeKey) => this.#kinds.isStoreKeyOf(key, storeKey));
  }

  get heldKeys(): readonly string[] {
    return this.#engine.heldLocks.keys;
  }

  /** Begins the shutdown: rejects waiters and new acquisitions. Held locks stay held and are renewed. */
  stopGranting(): void {
    this.#engine.shutdown.begin();
  }

  /** Waits for the work under locks to end. Returns the keys of the locks that were not released. */
  drain(limits: Required<ShutdownOptions>): Promise<readonly string[]> {
    return this.#engine.shutdown.drain(limits, findLocksInContext(this));
  }

  /** Ends all requests, and closes the backend unless another module uses it. */
  close(): Promise<void> {
    return this.#engine.shutdown.close();
  }

  #prepare(key: string, options: AcquireOptions): Prepared {
    checkKey(key);
    const { signal, reentrant, label } = this.#check(options);
    this.#kinds.registry.onPlain(key);
    const storeKey = lockStoreKey(this.namespace, key);
    return {
      reentrantLock: findOuterLock(this, key, storeKey, reentrant),
      params: { key, storeKey, signal, label, ...resolveLockOptions(options, this.#options.defaults) },
    };
  }

  #check(options: AcquireOptions): AcquireOptions {
    if (options !== NO_OPTIONS) checkAcquireOptions(options, this.leaseLimits);
    this.stopping.throwIfAborted();
    options.signal?.throwIfAborted();
    return options;
  }
}
