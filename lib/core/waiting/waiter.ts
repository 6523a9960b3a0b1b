import { setMaxListeners } from 'node:events';
import type { TimerWheel, TimerEntry } from '../timer-wheel.js';
import type { Clock } from '../clock.js';
import type { Lease } from '../leases/lease.js';
import type { LinkedListNode } from '../linked-list.js';
import type { ResolvedLockOptions } from '../options.js';

/** What somebody asks for. */
export interface AcquireParams extends ResolvedLockOptions {
  /** The key as its user knows it. */
  readonly key: string;
  readonly storeKey: string;
  /** Ends the wait with its reason. */
  readonly signal?: AbortSignal | undefined;
}

/** Where somebody waits. */
export interface WaiterOwner {
  onTimeout(waiter: Waiter): void;
  /** Its signal ended the wait. */
  reject(waiter: Waiter, reason: unknown): void;
}

/** Even who does not wait for the lock waits so long for the answer. */
export const MIN_RESULT_WAIT_MS = 1_000;

/** A caller who wants a key: how long still, and what he is told in the end. */
export class Waiter implements TimerEntry {
  readonly params: AcquireParams;
  /** Settles with the lock, or with the reason why there is none. */
  readonly outcome: Promise<Lease>;
  readonly #clock: Clock;
  readonly #startedAtMs: number;
  /** Where he stands in line. */
  queueNode: LinkedListNode<Waiter> | undefined;
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

  /** When he will have waited for long enough. */
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

  /** Has been granted the lock, or refused. */
  get isSettled(): boolean {
    return this.#isSettled;
  }

  /** Leaves the place when its signal ends the wait. */
  listenToSignal(owner: Pick<WaiterOwner, 'reject'>): void {
    const { signal } = this.params;
    if (!signal) return;
    this.#onAbort = () => owner.reject(this, signal.reason);
    setMaxListeners(0, signal); // Any number may wait with one signal.
    signal.addEventListener('abort', this.#onAbort);
  }

  /** Whether he has not heard yet if the key is taken. */
  get isAwaitingResult(): boolean {
    return this.#isAwaitingResult;
  }

  /** Waits for the answer to a question that is open already, which may take longer than he would wait for one of his own. */
  awaitResult(timerWheel: TimerWheel, owner: WaiterOwner): void {
    this.#isAwaitingResult = true;
    this.wait(timerWheel, owner);
  }

  /** Has heard how things stand. */
  stopAwaitingResult(timerWheel: TimerWheel): void {
    if (!this.#isAwaitingResult) return;
    const isScheduled = timerWheel.remove(this);
    this.#isAwaitingResult = false;
    if (isScheduled) timerWheel.add(this);
  }

  /** Waits until he is granted the lock or refused, but not longer than he wishes. */
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

  /** Waits for nothing any more. */
  stopWaiting(timerWheel: TimerWheel): void {
    this.#isSettled = true;
    if (this.#owner) timerWheel.remove(this);
    if (this.#onAbort) this.params.signal?.removeEventListener('abort', this.#onAbort);
  }
}
