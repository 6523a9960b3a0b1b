import type { ReleaseResult, Taken, UnknownResult } from '../backend.js';
import type { Clock } from '../clock.js';
import { timeoutError, unavailableError } from '../error-factories.js';
import { LockConfigError } from '../errors.js';
import type { Events } from '../events.js';
import { type Acquirer, type NotGranted, isConnectionLost } from '../leases/acquirer.js';
import { Grant } from '../leases/grant.js';
import type { HandoffQueue, HeldLock } from '../leases/held-lock.js';
import type { HeldLocks } from '../leases/held-locks.js';
import { Lease } from '../leases/lease.js';
import type { Releaser } from '../leases/releaser.js';
import { LinkedList } from '../linked-list.js';
import { StoreTimeoutError } from '../requests/store-timeout-error.js';
import type { TimerEntry, TimerWheel } from '../timer-wheel.js';
import { backoffMs, contendedBackoffMs } from './backoff.js';
import { MAX_LOCAL_HANDOFFS, mayHandOff, requestTokensIfFew } from './handoff.js';
import { type AcquireParams, Waiter } from './waiter.js';

export interface WaitQueueParts {
  readonly clock: Clock;
  /** Keeps the process alive while callers wait. */
  readonly timerWheel: TimerWheel;
  readonly events: Events;
  readonly acquirer: Acquirer;
  readonly releaser: Releaser;
  readonly heldLocks: HeldLocks;
  /** Shown by `inspect()`. */
  readonly instance: string;
}

/**
 * While callers wait for a lock of their own process, the queue confirms the grant at the store at this interval. The
 * store may have released the key by force or forgotten it.
 */
const CONFIRM_EVERY_MS = 1_000;

/** The store keeps a place in its wait queue for this long without a retry. */
const STORE_QUEUE_PLACE_MS = 6_000;

/**
 * The waiters of this process for one key, first come, first served. However many they are, at most one acquisition of
 * the key is open at the store. Its grant is handed over from one waiter to the next.
 */
export class WaitQueue implements HandoffQueue {
  readonly #key: string;
  readonly #storeKey: string;
  readonly #parts: WaitQueueParts;
  readonly #onEmpty: (storeKey: string, queue: WaitQueue) => void;
  readonly #waiters = new LinkedList<Waiter>();
  /** Waiters that do not know yet whether the key is taken. */
  #newWaiters: Waiter[] | undefined;
  #held: HeldLock | undefined;
  /** The holder of the acquisitions. All retries use the same one, so that the store keeps its place in the queue. */
  #holder: string | undefined;
  #isQueuedInStore = false;
  #isAcquiring = false;
  /** The open acquisition repeats one whose connection was lost. */
  #isReconnectRetry = false;
  #tries = 0;
  #lastUnknownResult: UnknownResult | undefined;
  /** The monotonic time at which the lease of another process ends, by the newest result. */
  #takenUntilMs = 0;
  #retryTimer: TimerEntry | undefined;
  /** The earliest retry that release notices asked for while an acquisition was open. */
  #notifiedForMs = Infinity;

  constructor(
    { key, storeKey }: { key: string; storeKey: string },
    parts: WaitQueueParts,
    onEmpty: (storeKey: string, queue: WaitQueue) => void,
  ) {
    this.#key = key;
    this.#storeKey = storeKey;
    this.#parts = parts;
    this.#onEmpty = onEmpty;
  }

  get size(): number {
    return this.#waiters.size;
  }

  get grant(): Grant | undefined {
    return this.#held?.grant;
  }

  /** Adds a waiter. Its outcome is the lock, or the reason why it was not acquired. */
  enqueue(params: AcquireParams): Promise<Lease> {
    const waiter = new Waiter(params, this.#parts, this);
    waiter.enter(this.#waiters);
    if (this.#held) {
      this.#onContended(waiter, this.#held.grant.remainingMs);
      if (!this.#retryTimer) this.#retryIn(CONFIRM_EVERY_MS);
    } else if (this.#retryTimer && !this.#lastUnknownResult) this.#onContended(waiter, 0);
    else {
      if (this.#newWaiters) this.#newWaiters.push(waiter);
      else this.#newWaiters = [waiter];
      // The acquisition that is sent for a waiter ends in time by itself. That saves a lone lock its timer.
      const sendsRequest = !this.#isAcquiring && this.#waiters.size === 1;
      if (!sendsRequest) waiter.awaitResult();
      this.#acquire();
    }
    return waiter.outcome;
  }

  /** Adopts a lock of `tryAcquire`, so that it can be handed over like any other lock. */
  attach(held: HeldLock): void {
    // The earlier lock has ended in the store, but its lease may not have noticed yet. The queue keeps it until then.
    if (this.#held) return;
    this.#adopt(held);
    this.#retryIn(CONFIRM_EVERY_MS);
  }

  /** The key may be free in `inMs`. */
  onReleaseNotice(inMs: number): void {
    if (this.#held) return;
    const atMs = this.#parts.clock.monotonicMs() + inMs;
    if (this.#isAcquiring) this.#notifiedForMs = Math.min(this.#notifiedForMs, atMs);
    else if (this.#retryTimer && this.#retryTimer.atMs > atMs) this.#retryIn(inMs);
  }

  rejectAll(reason: unknown): void {
    for (const waiter of [...this.#waiters]) this.reject(waiter, reason);
  }

  tryHandOff(held: HeldLock): boolean {
    if (this.#held !== held) return false;
    const next = this.#waiters.first?.value;
    if (!next) {
      // A caller that comes from now on sends its own acquisition, which follows the release.
      this.#held = undefined;
      this.#removeIfEmpty();
      return false;
    }
    if (!mayHandOff(held, next.params)) return false;
    this.#deliver(held, next);
    return true;
  }

  onHeldLockEnded(held: HeldLock, result?: ReleaseResult): void {
    if (this.#held !== held) return;
    this.#held = undefined;
    // A store without a wait queue grants the first request, and that would always be ours.
    if (result?.kind === 'released' && result.hasWaiters) this.#retryIn(contendedBackoffMs());
    else this.#acquire();
    this.#removeIfEmpty();
  }

  onTimeout(waiter: Waiter): void {
    const { waitedMs } = waiter;
    const cause = waiter.isAwaitingResult ? new StoreTimeoutError(waitedMs) : this.#lastUnknownResult?.cause;
    if (cause) {
      this.reject(waiter, unavailableError(this.#key, cause));
      return;
    }
    this.#parts.events.emit('timeout', { key: this.#key, waitedMs });
    const remainingMs = this.#held ? 0 : this.#takenUntilMs - this.#parts.clock.monotonicMs();
    this.reject(waiter, timeoutError(this.#key, waitedMs, remainingMs));
  }

  reject(waiter: Waiter, reason: unknown): void {
    waiter.reject(reason);
    this.#removeIfEmpty();
  }

  #deliver(held: HeldLock, waiter: Waiter): void {
    const { waitedMs, params } = waiter;
    const lease = new Lease(held, params.purpose);
    waiter.resolve(lease);
    if (this.#waiters.first) requestTokensIfFew(held);
    this.#parts.events.emit('acquired', { key: this.#key, fencingToken: lease.fencingToken, waitedMs });
  }

  get #canAcquire(): boolean {
    return !this.#isAcquiring && !this.#held && this.#waiters.first !== undefined;
  }

  #acquire(): void {
    const waiter = this.#waiters.first?.value;
    if (!waiter || !this.#canAcquire) return;
    const { acquirer, instance } = this.#parts;
    const holder = (this.#holder ??= acquirer.newHolder());
    this.#isAcquiring = true;
    this.#tries += 1;
    this.#notifiedForMs = Infinity;
    this.#cancelRetry();
    const request = {
      key: this.#storeKey,
      holder,
      leaseMs: waiter.params.leaseMs,
      instance,
      tokenCount: MAX_LOCAL_HANDOFFS,
      retryWithinMs: waiter.remainingWaitMs > 0 ? STORE_QUEUE_PLACE_MS : undefined,
    };
    const { maxResultWaitMs } = waiter;
    acquirer.acquire({ key: this.#key, request, maxResultWaitMs }, (result) => this.#onResult(result));
  }

  #onResult(result: Grant | NotGranted): void {
    this.#isAcquiring = false;
    const wasReconnectRetry = this.#isReconnectRetry;
    this.#isReconnectRetry = false;
    if (result instanceof Grant) this.#onGranted(result);
    else if (isConnectionLost(result) && !wasReconnectRetry && this.#canAcquire)
      this.#retryOverNewConnection();
    else if (result.kind === 'unknown') this.#onUnknown(result);
    else if (result.kind === 'taken') this.#onTaken(result);
    this.#removeIfEmpty();
  }

  /**
   * Repeats the acquisition once before new waiters get a result. It uses a new holder: the old one is being withdrawn,
   * together with its place in the store's queue.
   */
  #retryOverNewConnection(): void {
    this.#leaveHolder();
    this.#isReconnectRetry = true;
    this.#acquire();
  }

  #onGranted(grant: Grant): void {
    this.#leaveHolder();
    this.#takenUntilMs = 0;
    this.#tries = 0;
    const next = this.#waiters.first?.value;
    // The first waiter may have left meanwhile, and the next one may want another lease.
    if (!next || next.params.leaseMs !== grant.leaseMs) {
      this.#lastUnknownResult = undefined;
      this.#parts.releaser.release(grant.claim, grant.lastsUntilMs);
      this.#acquire();
      return;
    }
    const held = this.#parts.heldLocks.add(grant, { renew: next.params.renew, queue: this });
    this.#adopt(held);
    this.#deliver(held, next);
    for (const newWaiter of this.#takeNewWaiters()) this.#onContended(newWaiter, grant.remainingMs);
    this.#retryIn(CONFIRM_EVERY_MS);
  }

  #adopt(held: HeldLock): void {
    this.#held = held;
    this.#lastUnknownResult = undefined;
    this.#notifiedForMs = Infinity;
  }

  #onTaken(result: Taken): void {
    this.#isQueuedInStore ||= result.isQueued ?? false;
    this.#takenUntilMs = this.#parts.clock.monotonicMs() + result.remainingMs;
    this.#lastUnknownResult = undefined;
    for (const newWaiter of this.#takeNewWaiters()) this.#onContended(newWaiter, result.remainingMs);
    this.#retryIn(backoffMs(this.#tries, result));
  }

  #onUnknown(result: UnknownResult): void {
    // Waiters that were already queued keep waiting until the store is back. New ones fail at once, unless the store is
    // only slow.
    const mayWait = result.cause instanceof StoreTimeoutError;
    this.#lastUnknownResult = result;
    // The old holder is being withdrawn with its place in the store's queue, which may take a while.
    if (result.wasSent !== false) this.#leaveHolder();
    const isPermanent = result.cause instanceof LockConfigError;
    if (isPermanent) this.rejectAll(unavailableError(this.#key, result.cause));
    for (const newWaiter of this.#takeNewWaiters()) {
      if (mayWait) newWaiter.awaitTurn();
      else this.reject(newWaiter, unavailableError(this.#key, result.cause));
    }
    this.#retryIn(backoffMs(this.#tries, result));
  }

  /** Publishes that the key is taken, and starts the timeout. */
  #onContended(waiter: Waiter, remainingMs: number): void {
    this.#parts.events.emit('contended', { key: this.#key, remainingMs });
    if (!waiter.isSettled) waiter.awaitTurn();
  }

  /** Returns the waiters without any result so far, and empties their list. */
  #takeNewWaiters(): Waiter[] {
    const newWaiters = this.#newWaiters ?? [];
    this.#newWaiters = undefined;
    return newWaiters.filter((waiter) => !waiter.isSettled);
  }

  /** The next acquisition has a new holder, which has no place in the store's queue. */
  #leaveHolder(): void {
    this.#holder = undefined;
    this.#isQueuedInStore = false;
  }

  #retryIn(delayMs: number): void {
    const { timerWheel, clock } = this.#parts;
    this.#cancelRetry();
    if (!this.#waiters.first) return;
    const nowMs = clock.monotonicMs();
    const atMs = Math.min(nowMs + delayMs, this.#notifiedForMs);
    if (atMs <= nowMs) this.#retry();
    else this.#retryTimer = timerWheel.add({ atMs, run: () => this.#retry() });
  }

  #retry(): void {
    this.#retryTimer = undefined;
    if (this.#held) {
      void this.#held.confirm();
      this.#retryIn(CONFIRM_EVERY_MS);
    } else this.#acquire();
  }

  #cancelRetry(): void {
    if (this.#retryTimer) this.#parts.timerWheel.remove(this.#retryTimer);
    this.#retryTimer = undefined;
  }

  #removeIfEmpty(): void {
    if (this.#waiters.first || this.#isAcquiring) return;
    this.#cancelRetry();
    if (this.#held) return;
    if (this.#isQueuedInStore && this.#holder !== undefined) {
      const claim = { key: this.#storeKey, holder: this.#holder };
      this.#isQueuedInStore = false;
      this.#parts.releaser.release(claim, this.#parts.clock.monotonicMs() + STORE_QUEUE_PLACE_MS);
    }
    this.#onEmpty(this.#storeKey, this);
  }
}
