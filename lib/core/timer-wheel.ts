import { AsyncResource } from 'node:async_hooks';
import type { Clock, Timer, TimerOptions } from './clock.js';
import { LinkedList, LinkedListNode } from './linked-list.js';

/** Runs when its time has come. */
interface TimerTask {
  onDue(): void;
}

/** A task in a {@link TimerWheel}, until it has run or is cancelled. */
export class WheelTimer extends LinkedListNode<TimerTask> {
  /** The monotonic time at which it is due. */
  readonly atMs: number;
  readonly #onRemoved: () => void;

  constructor(atMs: number, task: TimerTask, bucket: LinkedList<TimerTask>, onRemoved: () => void) {
    super(task, bucket);
    this.atMs = atMs;
    this.#onRemoved = onRemoved;
  }

  /** Returns whether it was still pending. */
  cancel(): boolean {
    if (!this.remove()) return false;
    this.#onRemoved();
    return true;
  }
}

/** Wide enough that few buckets cover a lease, narrow enough that few timers are visited before they are due. */
const BUCKET_MS = 64;

/**
 * A hashed timing wheel: any number of deadlines with one timer of the clock. All tasks that are due when it fires
 * run in one turn of the event loop, in the order of their deadlines.
 *
 * @see Varghese and Lauck, "Hashed and Hierarchical Timing Wheels" (1987)
 */
export class TimerWheel {
  readonly #clock: Clock;
  readonly #options: TimerOptions;
  readonly #buckets = new Map<number, LinkedList<TimerTask>>();
  /** Runs in the asynchronous context in which the wheel was created, not in that of the call that set its timer. */
  readonly #onTimer = AsyncResource.bind(() => this.#wake());
  #timer: Timer | undefined;
  #wakesAtMs = Infinity;
  #size = 0;

  constructor(clock: Clock, options: TimerOptions = {}) {
    this.#clock = clock;
    this.#options = options;
  }

  /** Runs the task at this monotonic time. */
  add(atMs: number, task: TimerTask): WheelTimer {
    const timer = new WheelTimer(atMs, task, this.#bucketAt(atMs), this.#onRemoved);
    this.#size += 1;
    if (atMs < this.#wakesAtMs) this.#wakeAt(atMs);
    return timer;
  }

  /** Cancels the timer if none is left. */
  cancelUnusedTimer(): void {
    if (this.#size > 0) return;
    this.#buckets.clear();
    this.#wakeAt(Infinity);
  }

  /** `Infinity` is never due and has its own bucket. */
  #bucketAt(atMs: number): LinkedList<TimerTask> {
    const number = Math.floor(atMs / BUCKET_MS);
    let bucket = this.#buckets.get(number);
    if (!bucket) {
      bucket = new LinkedList();
      this.#buckets.set(number, bucket);
    }
    return bucket;
  }

  readonly #onRemoved = (): void => {
    this.#size -= 1;
    // An unused timer may fire without effect, which is cheaper than to cancel it, unless it keeps the process alive.
    if (this.#options.awaited) this.cancelUnusedTimer();
  };

  #wake(): void {
    const nowMs = this.#clock.monotonicMs();
    const due: WheelTimer[] = [];
    let next = Infinity;
    for (const [number, bucket] of this.#buckets) {
      if (bucket.size === 0) this.#buckets.delete(number);
      else if (number * BUCKET_MS > nowMs) next = Math.min(next, number * BUCKET_MS);
      else {
        for (let node = bucket.first; node; node = node.next) {
          const timer = node as WheelTimer;
          if (timer.atMs <= nowMs) due.push(timer);
          else next = Math.min(next, timer.atMs);
        }
      }
    }
    this.#wakeAt(next);
    due.sort((one, other) => one.atMs - other.atMs);
    for (const timer of due) if (timer.cancel()) timer.value.onDue();
  }

  #wakeAt(atMs: number): void {
    this.#timer?.cancel();
    this.#wakesAtMs = atMs;
    this.#timer =
      atMs === Infinity
        ? undefined
        : this.#clock.after(Math.max(atMs - this.#clock.monotonicMs(), 0), this.#onTimer, this.#options);
  }
}
