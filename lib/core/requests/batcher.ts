import { AsyncResource } from 'node:async_hooks';
import type { BatchResult, LockBackend } from '../backend.js';
import { type Clock, type Moment, momentOf } from '../clock.js';
import { LockShutdownError } from '../errors.js';
import type { LinkedListNode } from '../linked-list.js';
import { nextTick } from '../real-time.js';
import type { TimerEntry, TimerWheel } from '../timer-wheel.js';
import { type PendingRequests, type RequestKind, Batch } from './batch.js';

/** The longest timeout of a request. Since requests share a batch, each one may reach the store this late. */
export const MAX_REQUEST_TIMEOUT_MS = 5_000;

interface BatcherParts {
  readonly backend: LockBackend;
  readonly clock: Clock;
  readonly timerWheel: TimerWheel;
}

/**
 * Sends requests to the backend in batches. Every request gets a result within its timeout and never a rejection: after
 * an error or a timeout the result is `unknown`, since the request may have taken effect or may still do so.
 *
 * All requests of one turn of the event loop are sent in one batch at its end, so a single request is not delayed.
 */
export class Batcher {
  readonly #backend: LockBackend;
  readonly #clock: Clock;
  readonly #timerWheel: TimerWheel;
  /** A batch has requests of many callers, so it runs in the asynchronous context of none of them. */
  readonly #context = new AsyncResource('LockBatcher');
  readonly #preferredBatchSize: number;
  #batch: Batch | undefined;
  #isClosed = false;

  constructor({ backend, clock, timerWheel }: BatcherParts) {
    this.#backend = backend;
    this.#preferredBatchSize = backend.preferredBatchSize ?? Infinity;
    this.#clock = clock;
    this.#timerWheel = timerWheel;
  }

  send<Kind extends RequestKind>(kind: Kind, pending: PendingRequests[Kind]): void {
    if (this.#batch && !this.#batch.canAdd(pending)) this.#send(this.#batch);
    this.#batch ??= this.#openBatch();
    this.#batch.add(kind, pending);
    // No caller waits for a renewal, so renewals can wait for the end of the turn.
    if (kind !== 'renew' && this.#batch.size >= this.#preferredBatchSize) this.#send(this.#batch);
  }

  /** Resolves when the backend has received all requests that were sent so far. */
  whenSent(): Promise<void> {
    return this.#batch?.whenSent() ?? Promise.resolve();
  }

  /** Sends nothing from now on: a request would make the closed backend connect again. */
  close(): void {
    this.#isClosed = true;
  }

  #openBatch(): Batch {
    const batch = new Batch();
    // Runs after the callbacks of all promises that one result has settled, so that their requests share a batch again.
    nextTick(() => {
      if (this.#batch === batch) this.#send(batch);
    });
    return batch;
  }

  #send(batch: Batch): void {
    this.#batch = undefined;
    this.#context.runInAsyncScope(() => this.#execute(batch));
  }

  #execute(batch: Batch): void {
    const sentAt = momentOf(this.#clock);
    const timeout = new BatchTimeout(batch, sentAt, this.#timerWheel);
    const tookMs = () => {
      timeout.cancel();
      return this.#clock.monotonicMs() - sentAt.monotonicMs;
    };
    this.#callBackend(batch).then(
      (result) => batch.complete(result, sentAt, tookMs()),
      (cause: unknown) => batch.fail(cause, sentAt, tookMs()),
    );
    batch.notifySent();
  }

  async #callBackend(batch: Batch): Promise<BatchResult> {
    if (this.#isClosed) throw new LockShutdownError('The application has ended.');
    return await this.#backend.execute(batch.requests, batch.longestTimeoutMs);
  }
}

/** Gives up each request of a batch when its timeout is over. */
class BatchTimeout implements TimerEntry {
  readonly #batch: Batch;
  readonly #sentAt: Moment;
  readonly #timerWheel: TimerWheel;
  wheelNode: LinkedListNode<TimerEntry> | undefined;
  #timeoutMs: number;

  constructor(batch: Batch, sentAt: Moment, timerWheel: TimerWheel) {
    this.#batch = batch;
    this.#sentAt = sentAt;
    this.#timerWheel = timerWheel;
    this.#timeoutMs = batch.shortestTimeoutMs;
    timerWheel.add(this);
  }

  get atMs(): number {
    return this.#sentAt.monotonicMs + this.#timeoutMs;
  }

  run(): void {
    this.#timeoutMs = this.#batch.timeOutAfter(this.#timeoutMs, this.#sentAt);
    if (this.#timeoutMs < Infinity) this.#timerWheel.add(this);
  }

  cancel(): void {
    this.#timerWheel.remove(this);
  }
}
