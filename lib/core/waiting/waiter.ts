import type { Clock } from '../clock.js';
import type { EventSubject } from '../events.js';
import type { LockHandle } from '../leases/lock-handle.js';
import type { LinkedList, LinkedListNode } from '../linked-list.js';
import { queueMicrotask } from '../real-timers.js';
import type { ResolvedLockOptions } from '../options.js';
import type { TimerWheel, WheelTimer } from '../timer-wheel.js';
import type { AcquireTrace } from '../tracing-channels.js';
import { type WaitSignal, allowManyListeners } from './wait-controller.js';

/** The parameters of one acquisition. */
export interface AcquireParams extends ResolvedLockOptions, EventSubject {
  /** The key as the application named it. */
  readonly key: string;
  /** The key as the store knows it, with its namespace as prefix. */
  readonly storeKey: string;
  /** When it aborts, the acquisition rejects with its reason. */
  readonly signal?: WaitSignal | undefined;
  /** Only if somebody traces acquisitions. */
  readonly trace?: AcquireTrace | undefined;
  /** The monotonic time from which `waitMs` counts, if the wait has begun with another part of the same lock. */
  readonly startedAtMs?: number | undefined;
  /** How long a single try may take. @default as long as the caller waits, but at least a second */
  readonly maxResultWaitMs?: number | undefined;
  /** A writer takes this slot from readers. It is written into the holder. */
  readonly isOfWriter?: boolean | undefined;
  /** The caller waits for other keys already, so an outage of the store does not end this wait at once. */
  readonly isWaitingElsewhere?: boolean | undefined;
  /** Called in the turn of the event loop in which it happens: the lock that consists of several acquisitions. */
  readonly observer?: AcquireObserver | undefined;
}

export interface AcquireObserver {
  /** The key is taken, and the waiter waits for it. */
  onContended?(remainingMs: number): void;
  /** The waiter waits: the key is taken, or the store does not say whether it is. */
  onQueued?(): void;
  /** The lock is delivered to the waiter. */
  onGranted?(): void;
}

interface WaiterParts {
  readonly clock: Clock;
  readonly timerWheel: TimerWheel;
}

/** Settles a waiter when its wait ends without a lock. */
interface WaiterOwner<Outcome> {
  onTimeout(waiter: Waiter<Outcome>): void;
  /** The signal of the waiter aborted. */
  reject(waiter: Waiter<Outcome>, reason: unknown): void;
}

/** Also a caller with a `waitMs` of 0 waits this long for the result of the store. */
const MIN_RESULT_WAIT_MS = 1_000;

/**
 * One call that acquires a key: its place in the queue, its abort signal, its outcome, and its time limit. While the
 * request of this call is at the store, the timeout of the request limits it: see `timeoutOf` in leases/acquirer.ts.
 */
export class Waiter<Outcome = LockHandle> {
  readonly params: AcquireParams;
  /** Resolves with the lock, or rejects with the reason why it was not acquired. */
  readonly outcome: Promise<Outcome>;
  readonly #parts: WaiterParts;
  readonly #owner: WaiterOwner<Outcome>;
  readonly startedAtMs: number;
  #queueNode: LinkedListNode<Waiter<Outcome>> | undefined;
  #timer: WheelTimer | undefined;
  #isSettled = false;
  #isAwaitingResult = false;
  #stopListening: (() => void) | undefined;
  #resolve!: (outcome: Outcome) => void;
  #reject!: (reason: unknown) => void;

  constructor(params: AcquireParams, parts: WaiterParts, owner: WaiterOwner<Outcome>) {
    this.params = params;
    this.#parts = parts;
    this.#owner = owner;
    this.startedAtMs = params.startedAtMs ?? parts.clock.monotonicMs();
    this.outcome = new Promise((resolve, reject) => {
      this.#resolve = resolve;
      this.#reject = reject;
    });
  }

  get waitedMs(): number {
    return this.#parts.clock.monotonicMs() - this.startedAtMs;
  }

  get remainingWaitMs(): number {
    return Math.max(this.params.waitMs - this.waitedMs, 0);
  }

  /** How long an acquisition that is sent for it now may take. */
  get maxResultWaitMs(): number {
    return this.params.maxResultWaitMs ?? Math.max(this.remainingWaitMs, MIN_RESULT_WAIT_MS);
  }

  /** Whether its outcome is decided. */
  get isSettled(): boolean {
    return this.#isSettled;
  }

  /** Whether it waits for an open acquisition and does not know yet if the key is taken. */
  get isAwaitingResult(): boolean {
    return this.#isAwaitingResult;
  }

  /** Joins the queue until its outcome is decided. */
  enter(queue: LinkedList<Waiter<Outcome>>): void {
    // First, since it throws for a signal of another runtime: nobody would take the lock that a queued waiter gets.
    this.#listen();
    this.#queueNode = queue.add(this);
  }

  #listen(): void {
    const { signal } = this.params;
    if (!signal) return;
    const onAbort = () => {
      if (!this.#isSettled) this.#owner.reject(this, signal.reason);
    };
    allowManyListeners(signal);
    signal.addEventListener('abort', onAbort);
    // A subscriber may have aborted it since it was checked.
    if (signal.aborted) queueMicrotask(onAbort);
    this.#stopListening = () => signal.removeEventListener('abort', onAbort);
  }

  /** Waits for the result of an acquisition that is already open. Its result may come later than `waitMs` allows. */
  awaitResult(): void {
    this.#isAwaitingResult = true;
    // From now on: it may have waited for other parts of its lock before.
    this.#setTimer(this.waitedMs + this.maxResultWaitMs);
  }

  onContended(remainingMs: number): void {
    const { trace, observer } = this.params;
    if (trace) trace.isContended = true;
    observer?.onContended?.(remainingMs);
  }

  /** The first request for it has ended: from now on only `waitMs` counts. */
  awaitTurn(): void {
    this.params.observer?.onQueued?.();
    if (this.#isSettled) return;
    if (this.#isAwaitingResult) this.#timer?.cancel();
    this.#isAwaitingResult = false;
    if (this.remainingWaitMs === 0) this.onDue();
    else if (!this.#timer?.isLinked) this.#setTimer(this.params.waitMs);
  }

  /** Called by the timer wheel. */
  onDue(): void {
    this.#owner.onTimeout(this);
  }

  resolve(outcome: Outcome): void {
    this.#settle();
    this.params.observer?.onGranted?.();
    this.#resolve(outcome);
  }

  reject(reason: unknown): void {
    this.#settle();
    this.#reject(reason);
  }

  #settle(): void {
    this.#isSettled = true;
    this.#queueNode?.remove();
    this.#stopListening?.();
    this.#timer?.cancel();
  }

  #setTimer(waitMs: number): void {
    this.#timer = this.#parts.timerWheel.add(this.startedAtMs + waitMs, this);
  }
}
