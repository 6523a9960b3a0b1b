import { AsyncResource } from 'node:async_hooks';
import type { TimerWheel, TimerEntry } from '../timer-wheel.js';
import type { BatchResult, LockBackend } from '../backend.js';
import { Batch, type PendingRequests, type RequestKind } from './batch.js';
import { type Clock, type Moment, momentOf } from '../clock.js';
import { LockShutdownError } from '../errors.js';
import type { LinkedListNode } from '../linked-list.js';
import { nextTick } from '../real-time.js';

/** No errand has a longer limit. As errands go together, each may reach the store as late as that. */
export const MAX_REQUEST_TIMEOUT_MS = 5_000;

interface BatcherParts {
  readonly backend: LockBackend;
  readonly clock: Clock;
  readonly timerWheel: TimerWheel;
}

/**
 * Brings requests to the backend and always comes back: within the limit, never with a rejection. What went wrong
 * or took too long is `unknown`, since the request may have taken effect or may yet do so.
 *
 * What one turn of the event loop asks for goes out together at its end, so a lone request waits for nobody.
 */
export class Batcher {
  readonly #backend: LockBackend;
  readonly #clock: Clock;
  readonly #timerWheel: TimerWheel;
  /** What goes together was asked for by many: it travels in the asynchronous context of none of them. */
  readonly #context = new AsyncResource('LockCourier');
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
    // Nobody waits for renewals: they may go together with more.
    if (kind !== 'renew' && this.#batch.size >= this.#preferredBatchSize) this.#send(this.#batch);
  }

  /** Settles once all that was asked for so far has been handed to the backend. */
  whenSent(): Promise<void> {
    return this.#batch?.whenSent() ?? Promise.resolve();
  }

  /** Brings nothing any more: a request would make the backend open again. */
  close(): void {
    this.#isClosed = true;
  }

  #openBatch(): Batch {
    const batch = new Batch();
    // Runs once the promises that one answer settles have run, so that what they ask for goes together again.
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

/** Gives up the errands of a batch, each when its limit is over. */
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
