import { AsyncResource } from 'node:async_hooks';
import type { Clock, Timer, TimerOptions } from './clock.js';
import { type LinkedListNode, LinkedList } from './linked-list.js';

/** Something to do at a moment of the monotonic clock, which must not change while it stands in an agenda. */
export interface TimerEntry {
  readonly atMs: number;
  run(): void;
  /** Where it stands, as long as it does. */
  wheelNode?: LinkedListNode<TimerEntry> | undefined;
}

/** Wide enough that few buckets cover a lease, narrow enough that few entries are looked at without being due. */
const BUCKET_MS = 64;

/**
 * All that is to happen later, with one timer of the clock for however many entries: a hashed timing wheel. What is due
 * when it wakes runs in one turn of the event loop.
 *
 * @see Varghese and Lauck, "Hashed and Hierarchical Timing Wheels" (1987)
 */
export class TimerWheel {
  readonly #clock: Clock;
  readonly #options: TimerOptions;
  readonly #buckets = new Map<number, LinkedList<TimerEntry>>();
  /** In the asynchronous context of whoever made the agenda, not of whoever happened to arm its timer. */
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

  /** Says whether the entry was still to come. */
  remove(entry: TimerEntry): boolean {
    if (!entry.wheelNode) return false;
    entry.wheelNode.remove();
    entry.wheelNode = undefined;
    this.#size -= 1;
    // A timer that nobody needs any more is left to run into nothing, unless it keeps the process alive.
    if (this.#options.awaited) this.cancelUnusedTimer();
    return true;
  }

  /** Keeps no timer for nothing. */
  cancelUnusedTimer(): void {
    if (this.#size > 0) return;
    this.#buckets.clear();
    this.#wakeAt(Infinity);
  }

  /** `Infinity` is never due, and has a bucket like any other moment. */
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
