import { AsyncResource } from 'node:async_hooks';
import type { Clock, Timer, TimerOptions } from './clock.js';

/** Something to do at a moment of the monotonic clock, which must not change while it stands in an agenda. */
export interface Entry {
  readonly atMs: number;
  run(): void;
}

/** Wide enough that few buckets cover a lease, narrow enough that few entries are looked at without being due. */
const BUCKET_MS = 64;

/**
 * All that is to happen later, with one timer of the clock for however many entries: a hashed timing wheel. What is due
 * when it wakes runs in one turn of the event loop.
 *
 * @see Varghese and Lauck, "Hashed and Hierarchical Timing Wheels" (1987)
 */
export class Agenda {
  readonly #clock: Clock;
  readonly #options: TimerOptions;
  readonly #buckets = new Map<number, Set<Entry>>();
  /** In the asynchronous context of whoever made the agenda, not of whoever happened to arm its timer. */
  readonly #onTime = AsyncResource.bind(() => this.#wake());
  #timer: Timer | undefined;
  #wakesAtMs = Infinity;
  #size = 0;

  constructor(clock: Clock, options: TimerOptions = {}) {
    this.#clock = clock;
    this.#options = options;
  }

  add<Given extends Entry>(entry: Given): Given {
    const { atMs } = entry;
    // `Infinity` is never due, and has a bucket like any other moment.
    const bucket = bucketOf(atMs);
    const entries = this.#buckets.get(bucket);
    if (entries) entries.add(entry);
    else this.#buckets.set(bucket, new Set([entry]));
    this.#size += 1;
    if (atMs < this.#wakesAtMs) this.#wakeAt(atMs);
    return entry;
  }

  /** Says whether the entry was still to come. */
  remove(entry: Entry): boolean {
    const wasThere = this.#buckets.get(bucketOf(entry.atMs))?.delete(entry) ?? false;
    if (wasThere) this.#size -= 1;
    // A timer that nobody needs any more is left to run into nothing, unless it keeps the process alive.
    if (wasThere && this.#options.awaited) this.tidy();
    return wasThere;
  }

  /** Keeps no timer for nothing. */
  tidy(): void {
    if (this.#size === 0) this.#wakeAt(Infinity);
  }

  #wake(): void {
    const nowMs = this.#clock.monotonicMs();
    const due: Entry[] = [];
    let next = Infinity;
    for (const [bucket, entries] of this.#buckets) {
      if (entries.size === 0) this.#buckets.delete(bucket);
      else if (bucket * BUCKET_MS > nowMs) next = Math.min(next, bucket * BUCKET_MS);
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
        : this.#clock.after(Math.max(atMs - this.#clock.monotonicMs(), 0), this.#onTime, this.#options);
  }
}

const bucketOf = (atMs: number) => Math.floor(atMs / BUCKET_MS);
