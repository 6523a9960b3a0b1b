import { AsyncResource } from 'node:async_hooks';
import type { Clock, Timer, TimerOptions } from './clock.js';
import { type LinkedListNode, LinkedList } from './linked-list.js';

/** A callback with a deadline. */
export interface TimerEntry {
  /** The monotonic time at which it is due. Must not change while the entry is in a timer wheel. */
  readonly atMs: number;
  run(): void;
  /** Its place in the wheel, while it has one. Set by the timer wheel. */
  wheelNode?: LinkedListNode<TimerEntry> | undefined;
}

/** Wide enough that few buckets cover a lease, narrow enough that few entries are visited before they are due. */
const BUCKET_MS = 64;

/**
 * A hashed timing wheel: any number of deadlines with one timer of the clock. All entries that are due when it fires
 * run in one turn of the event loop, in the order of their deadlines.
 *
 * @see Varghese and Lauck, "Hashed and Hierarchical Timing Wheels" (1987)
 */
export class TimerWheel {
  readonly #clock: Clock;
  readonly #options: TimerOptions;
  readonly #buckets = new Map<number, LinkedList<TimerEntry>>();
  /** Runs in the asynchronous context in which the wheel was created, not in that of the call that set its timer. */
  readonly #onTimer = AsyncResource.bind(() => this.#wake());
  #timer: Timer | undefined;
  #wakesAtMs = Infinity;
  #size = 0;

  constructor(clock: Clock, options: TimerOptions = {}) {
    this.#clock = clock;
    this.#options = options;
  }

  add<Given extends TimerEntry>(entry: Given): Given {
    const { atMs } = entry;
    entry.wheelNode = this.#bucketAt(atMs).add(entry);
    this.#size += 1;
    if (atMs < this.#wakesAtMs) this.#wakeAt(atMs);
    return entry;
  }

  /** Removes the entry. Returns whether it had not run yet. */
  remove(entry: TimerEntry): boolean {
    if (!entry.wheelNode) return false;
    entry.wheelNode.remove();
    entry.wheelNode = undefined;
    this.#size -= 1;
    // An unused timer may fire without effect, which is cheaper than to cancel it, unless it keeps the process alive.
    if (this.#options.awaited) this.cancelUnusedTimer();
    return true;
  }

  /** Cancels the timer if no entry is left. */
  cancelUnusedTimer(): void {
    if (this.#size > 0) return;
    this.#buckets.clear();
    this.#wakeAt(Infinity);
  }

  /** `Infinity` is never due and has its own bucket. */
  #bucketAt(atMs: number): LinkedList<TimerEntry> {
    const number = Math.floor(atMs / BUCKET_MS);
    let bucket = this.#buckets.get(number);
    if (!bucket) {
      bucket = new LinkedList();
      this.#buckets.set(number, bucket);
    }
    return bucket;
  }

  #wake(): void {
    const nowMs = this.#clock.monotonicMs();
    const due: TimerEntry[] = [];
    let next = Infinity;
    for (const [number, entries] of this.#buckets) {
      if (entries.size === 0) this.#buckets.delete(number);
      else if (number * BUCKET_MS > nowMs) next = Math.min(next, number * BUCKET_MS);
      else {
        for (const entry of entries) {
          if (entry.atMs <= nowMs) due.push(entry);
          else next = Math.min(next, entry.atMs);
        }
      }
    }
    this.#wakeAt(next);
    due.sort((one, other) => one.atMs - other.atMs);
    for (const entry of due) if (this.remove(entry)) entry.run();
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
