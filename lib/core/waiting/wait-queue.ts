import type { ReleaseResult } from '../backend-results.js';
import type { UnknownResult } from '../unknown-result.js';
import type { Clock } from '../clock.js';
import { timeoutError, unavailableError } from '../error-factories.js';
import { LockConfigError } from '../errors.js';
import type { Events } from '../events.js';
import { type Acquirer, type NotGranted, isConnectionLost } from '../leases/acquirer.js';
import { Grant } from '../leases/grant.js';
import type { HandoffQueue, HeldLock } from '../leases/held-lock.js';
import type { HeldLocks } from '../leases/held-locks.js';
import { LockHandle } from '../leases/lock-handle.js';
import type { Releaser } from '../leases/releaser.js';
import { LinkedList } from '../linked-list.js';
import { StoreTimeoutError } from '../requests/store-timeout.js';
import type { TimerWheel, WheelTimer } from '../timer-wheel.js';
import { wantsSameGrant, mayHandOff, requestTokensIfFew } from './handoff.js';
import { OpenAcquisition, contendedBackoffMs } from './open-acquisition.js';
import { type AcquireParams, Waiter } from './waiter.js';

export interface WaitQueueParts {
  readonly clock: Clock;
  /** Keeps the process alive while callers wait. */
  readonly timerWheel: TimerWheel;
  readonly events: Events;
  readonly acquirer: Acquirer;
  readonly releaser: Releaser;
  readonly heldLocks: HeldLocks;
  readonly instance: string;
}

/** How often the grant is confirmed while callers wait. The store may have lost it, or released it by force. */
const CONFIRM_EVERY_MS = 1_000;

/**
 * The waiters of this process for one key, first come, first served. However many they are, at most one acquisition of
 * the key is open at the store. Its grant is handed over from one waiter to the next.
 */
export class WaitQueue implements HandoffQueue {
  readonly storeKey: string;
  readonly #key: string;
  readonly #parts: WaitQueueParts;
  readonly #onEmpty: (queue: WaitQueue) => void;
  readonly #waiters = new LinkedList<Waiter>();
  /** Waiters that do not know yet whether the key is taken. */
  #newWaiters: Waiter[] | undefined;
  #held: HeldLock | undefined;
  #acquisition: OpenAcquisition | undefined;
  #retryTimer: WheelTimer | undefined;
  /** The earliest retry that release notices asked for while an acquisition was open. */
  #notifiedForMs = Infinity;

  constructor({ key, storeKey }: AcquireParams, parts: WaitQueueParts, onEmpty: (queue: WaitQueue) => void) {
    this.#key = key;
    this.storeKey = storeKey;
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
  enqueue(params: AcquireParams): Promise<LockHandle> {
    const waiter = new Waiter(params, this.#parts, this);
    waiter.enter(this.#waiters);
    if (this.#held) {
      this.#onContended(waiter, this.#held.grant.remainingMs);
      if (!this.#retryTimer?.isLinked) this.#retryIn(CONFIRM_EVERY_MS);
    } else if (this.#retryTimer?.isLinked && !this.#acquisition?.unknownResult) this.#onContended(waiter, 0);
    else {
      (this.#newWaiters ??= []).push(waiter);
      // The acquisition that is sent for a waiter ends in time by itself. That saves a lone lock its timer.
      const sendsRequest = !this.#acquisition?.isSent && this.#waiters.size === 1;
      if (!sendsRequest) waiter.awaitResult();
      this.#acquire();
    }
    return waiter.outcome;
  }

  /** Adopts a lock of `tryAcquire`, so that it can be handed over like any other lock. */
  attach(held: HeldLock): void {
    // The earlier lock has ended in the store, but this process may not know it yet. The queue keeps it until then.
    if (this.#held) return;
    this.#adopt(held);
    this.#retryIn(CONFIRM_EVERY_MS);
  }

  /** The key may be free in `inMs`. */
  onReleaseNotice(inMs: number): void {
    if (this.#held) return;
    const atMs = this.#parts.clock.monotonicMs() + inMs;
    if (this.#acquisition?.isSent) this.#notifiedForMs = Math.min(this.#notifiedForMs, atMs);
    else if (this.#retryTimer?.isLinked && this.#retryTimer.atMs > atMs) this.#retryIn(inMs);
  }

  /** Why the newest request has no known result; `undefined` if it has one. */
  get outage(): unknown {
    return this.#acquisition?.unknownResult?.cause;
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
    const cause = waiter.isAwaitingResult ? new StoreTimeoutError(waitedMs) : this.outage;
    if (!cause) this.#parts.events.emit('timeout', { key: this.#key, waitedMs }, waiter.params);
    const remainingMs = this.#held ? 0 : (this.#acquisition?.takenForMs ?? 0);
    const error = cause ? unavailableError(this.#key, cause) : timeoutError(this.#key, waitedMs, remainingMs);
    this.reject(waiter, error);
  }

  reject(waiter: Waiter, reason: unknown): void {
    waiter.reject(reason);
    this.#removeIfEmpty();
  }

  #deliver(held: HeldLock, waiter: Waiter): void {
    const handle = new LockHandle(held, waiter.params, waiter);
    const { fencingToken, waitedMs } = handle;
    waiter.resolve(handle);
    if (this.#waiters.first) requestTokensIfFew(held);
    this.#parts.events.emit('acquired', { key: this.#key, fencingToken, waitedMs }, waiter.params);
  }

  #acquire(isReconnectRetry = false): void {
    const waiter = this.#waiters.first?.value;
    if (!waiter || this.#held || this.#acquisition?.isSent) return;
    this.#notifiedForMs = Infinity;
    this.#retryTimer?.cancel();
    const acquisition = (this.#acquisition ??= new OpenAcquisition(this.storeKey, this.#parts));
    acquisition.send(waiter, (result) => this.#onResult(acquisition, result, isReconnectRetry));
  }

  #onResult(acquisition: OpenAcquisition, result: Grant | NotGranted, wasReconnectRetry: boolean): void {
    if (result instanceof Grant) this.#onGranted(result);
    else if (isConnectionLost(result) && !wasReconnectRetry && this.#waiters.first && !this.#held) {
      // Repeated once before new waiters get a result.
      acquisition.leaveHolder();
      this.#acquire(true);
    } else if (result.kind === 'unknown') this.#onUnknown(result, acquisition.onUnknown(result));
    else if (result.kind === 'taken') this.#onKeyTaken(result.remainingMs, acquisition.onTaken(result));
    this.#removeIfEmpty();
  }

  #onGranted(grant: Grant): void {
    this.#acquisition = undefined;
    const next = this.#waiters.first?.value;
    // The first waiter may have left meanwhile, and the next one may want something else.
    if (!next || !wantsSameGrant(next.params, grant)) {
      this.#parts.releaser.release(grant.request, grant.latestStoreEndMs);
      this.#acquire();
      return;
    }
    const held = this.#parts.heldLocks.add(grant, { renew: next.params.renew, queue: this });
    this.#adopt(held);
    this.#deliver(held, next);
    this.#onKeyTaken(grant.remainingMs, CONFIRM_EVERY_MS);
  }

  #adopt(held: HeldLock): void {
    this.#held = held;
    this.#acquisition?.forgetUnknownResult();
    this.#notifiedForMs = Infinity;
  }

  /** By this process or another. */
  #onKeyTaken(remainingMs: number, pauseMs: number): void {
    for (const newWaiter of this.#takeNewWaiters()) this.#onContended(newWaiter, remainingMs);
    this.#retryIn(pauseMs);
  }

  #onUnknown({ cause }: UnknownResult, pauseMs: number): void {
    if (cause instanceof LockConfigError) this.rejectAll(unavailableError(this.#key, cause));
    // Queued waiters keep waiting until the store is back. New ones fail at once, unless it is only slow.
    for (const newWaiter of this.#takeNewWaiters()) {
      if (cause instanceof StoreTimeoutError || newWaiter.params.isWaitingElsewhere) newWaiter.awaitTurn();
      else this.reject(newWaiter, unavailableError(this.#key, cause));
    }
    this.#retryIn(pauseMs);
  }

  /** Publishes that the key is taken, and starts the timeout. */
  #onContended(waiter: Waiter, remainingMs: number): void {
    waiter.onContended(remainingMs);
    this.#parts.events.emit('contended', { key: this.#key, remainingMs }, waiter.params);
    if (!waiter.isSettled) waiter.awaitTurn();
  }

  #takeNewWaiters(): Waiter[] {
    const newWaiters = this.#newWaiters ?? [];
    this.#newWaiters = undefined;
    return newWaiters.filter((waiter) => !waiter.isSettled);
  }

  #retryIn(delayMs: number): void {
    const { timerWheel, clock } = this.#parts;
    this.#retryTimer?.cancel();
    if (!this.#waiters.first) return;
    const nowMs = clock.monotonicMs();
    const atMs = Math.min(nowMs + delayMs, this.#notifiedForMs);
    if (atMs <= nowMs) this.onDue();
    else this.#retryTimer = timerWheel.add(atMs, this);
  }

  /** The time of the next retry has come. */
  onDue(): void {
    if (this.#held) {
      void this.#held.confirm();
      this.#retryIn(CONFIRM_EVERY_MS);
    } else this.#acquire();
  }

  #removeIfEmpty(): void {
    if (this.#waiters.first || this.#acquisition?.isSent) return;
    this.#retryTimer?.cancel();
    if (this.#held) return;
    this.#acquisition?.leaveStoreQueue();
    this.#onEmpty(this);
  }
}
