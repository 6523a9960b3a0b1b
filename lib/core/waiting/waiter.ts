import { setMaxListeners } from 'node:events';
import type { Clock } from '../clock.js';
import type { Lease } from '../leases/lease.js';
import type { LinkedListNode } from '../linked-list.js';
import type { ResolvedLockOptions } from '../options.js';
import type { TimerEntry, TimerWheel } from '../timer-wheel.js';

/** The parameters of one acquisition. */
export interface AcquireParams extends ResolvedLockOptions {
  /** The key as the application named it. */
  readonly key: string;
  /** The key as the store knows it, with its namespace as prefix. */
  readonly storeKey: string;
  /** When it aborts, the acquisition rejects with its reason. */
  readonly signal?: AbortSignal | undefined;
}

/** What a waiter notifies when its wait ends without a lock. */
export interface WaiterOwner {
  onTimeout(waiter: Waiter): void;
  /** The signal of the waiter aborted. */
  reject(waiter: Waiter, reason: unknown): void;
}

/** Also a caller with a `waitMs` of 0 waits this long for the result of the store. */
export const MIN_RESULT_WAIT_MS = 1_000;

/** One call that acquires a key: its deadline, its abort signal and its outcome. */
export class Waiter implements TimerEntry {
  readonly params: AcquireParams;
  /** Resolves with the lock, or rejects with the reason why it was not acquired. */
  readonly outcome: Promise<Lease>;
  readonly #clock: Clock;
  readonly #startedAtMs: number;
  /** Its place in the wait queue. */
  queueNode: LinkedListNode<Waiter> | undefined;
  /** Set by the timer wheel. */
  wheelNode: LinkedListNode<TimerEntry> | undefined;
  #isSettled = false;
  #isAwaitingResult = false;
  #owner: WaiterOwner | undefined;
  #onAbort: (() => void) | undefined;
  #resolve!: (lease: Lease) => void;
  #reject!: (reason: unknown) => void;

  constructor(params: AcquireParams, clock: Clock) {
    this.params = params;
    this.#clock = clock;
    this.#startedAtMs = clock.monotonicMs();
    this.outcome = new Promise((resolve, reject) => {
      this.#resolve = resolve;
      this.#reject = reject;
    });
  }

  /** The monotonic time of its timeout. */
  get atMs(): number {
    const { waitMs } = this.params;
    return this.#startedAtMs + (this.#isAwaitingResult ? Math.max(waitMs, MIN_RESULT_WAIT_MS) : waitMs);
  }

  get waitedMs(): number {
    return this.#clock.monotonicMs() - this.#startedAtMs;
  }

  get remainingWaitMs(): number {
    return Math.max(this.params.waitMs - this.waitedMs, 0);
  }

  /** Whether its outcome is decided. */
  get isSettled(): boolean {
    return this.#isSettled;
  }

  /** Makes the owner reject the waiter when its signal aborts. */
  listenToSignal(owner: Pick<WaiterOwner, 'reject'>): void {
    const { signal } = this.params;
    if (!signal) return;
    this.#onAbort = () => owner.reject(this, signal.reason);
    setMaxListeners(0, signal); // Any number of waiters may share one signal.
    signal.addEventListener('abort', this.#onAbort);
  }

  /** Whether it waits for an open acquisition and does not know yet if the key is taken. */
  get isAwaitingResult(): boolean {
    return this.#isAwaitingResult;
  }

  /** Waits for the result of an acquisition that is already open. Its result may come later than `waitMs` allows. */
  awaitResult(timerWheel: TimerWheel, owner: WaiterOwner): void {
    this.#isAwaitingResult = true;
    this.wait(timerWheel, owner);
  }

  /** The open acquisition has a result: from now on only `waitMs` counts. */
  stopAwaitingResult(timerWheel: TimerWheel): void {
    if (!this.#isAwaitingResult) return;
    const isScheduled = timerWheel.remove(this);
    this.#isAwaitingResult = false;
    if (isScheduled) timerWheel.add(this);
  }

  /** Starts the timeout. */
  wait(timerWheel: TimerWheel, owner: WaiterOwner): void {
    if (this.#owner) return;
    this.#owner = owner;
    timerWheel.add(this);
  }

  run(): void {
    this.#owner?.onTimeout(this);
  }

  grant(lease: Lease, timerWheel: TimerWheel): void {
    this.stopWaiting(timerWheel);
    this.#resolve(lease);
  }

  reject(reason: unknown, timerWheel: TimerWheel): void {
    this.stopWaiting(timerWheel);
    this.#reject(reason);
  }

  /** Ends the wait: removes the timeout and the listener of the signal. */
  stopWaiting(timerWheel: TimerWheel): void {
    this.#isSettled = true;
    if (this.#owner) timerWheel.remove(this);
    if (this.#onAbort) this.params.signal?.removeEventListener('abort', this.#onAbort);
  }
}
