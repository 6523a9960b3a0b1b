import { AsyncResource } from 'node:async_hooks';
import {
  type BatchResult,
  type LockBackend,
  type OnResult,
  neverSentResult,
  unknownResult,
} from '../backend.js';
import { type Clock, type Moment, momentOf } from '../clock.js';
import { LockShutdownError } from '../errors.js';
import { LinkedList } from '../linked-list.js';
import { nextTick } from '../real-time.js';
import type { TimerWheel } from '../timer-wheel.js';
import { type PendingRequests, type RequestKind, type RequestResult, Batch, QueuedRequest } from './batch.js';

/** The longest timeout of a request. Since requests share a batch, each one may reach the store this late. */
export const MAX_REQUEST_TIMEOUT_MS = 5_000;

const MISSING_RESULT = unknownResult(new Error('the backend returned no result for a request'));

interface BatcherParts {
  readonly backend: LockBackend;
  readonly clock: Clock;
  readonly timerWheel: TimerWheel;
}

/**
 * Sends requests to the backend in batches. Every request gets a result within its timeout and never a rejection. After
 * an error or a timeout the result is `unknown`, since the request may have taken effect or may still do so, unless it
 * still waited to be sent.
 *
 * All requests of one turn of the event loop are sent in one batch at its end, so a single request is not delayed. Once
 * all lanes of the backend are busy, requests are collected until one is free. A request for a key then also waits for
 * the unfinished one of its key, so that it cannot overtake it on another lane.
 */
export class Batcher {
  readonly #backend: LockBackend;
  readonly #clock: Clock;
  readonly #timerWheel: TimerWheel;
  /** A batch has requests of many callers, so it runs in the asynchronous context of none of them. */
  readonly #context = new AsyncResource('LockBatcher');
  readonly #preferredBatchSize: number;
  readonly #maxBatchSize: number;
  /** The requests of this turn of the event loop. */
  #collected: QueuedRequest[] = [];
  /** The requests that could not be sent at the end of their turn. */
  readonly #waiting = new LinkedList<QueuedRequest>();
  #freeLanes: number;
  /** Without lanes the keys are not tracked: the backend itself keeps the order of its calls. */
  readonly #unfinishedKeys: Set<string> | undefined;
  #willSend = false;
  #onSent: (() => void)[] = [];
  #isClosed = false;

  constructor({ backend, clock, timerWheel }: BatcherParts) {
    const { lanes, preferredBatchSize = Infinity, maxBatchSize = Infinity } = backend;
    this.#backend = backend;
    this.#preferredBatchSize = preferredBatchSize;
    this.#maxBatchSize = maxBatchSize;
    this.#freeLanes = lanes ?? Infinity;
    this.#unfinishedKeys = lanes === undefined ? undefined : new Set();
    this.#clock = clock;
    this.#timerWheel = timerWheel;
  }

  send<Kind extends RequestKind>(kind: Kind, pending: PendingRequests[Kind]): void {
    this.#collected.push(new QueuedRequest(kind, pending, this.#timerWheel));
    // No caller waits for a renewal, so renewals can wait for the end of the turn.
    if (kind !== 'renew' && this.#collected.length >= this.#preferredBatchSize) this.#send();
    else this.#sendSoon();
  }

  /** Resolves when all requests so far have been sent, or wait for a lane. */
  whenSent(): Promise<void> {
    if (this.#collected.length === 0) return Promise.resolve();
    return new Promise((resolve) => this.#onSent.push(resolve));
  }

  /**
   * Accepts no more requests: one would make the closed backend connect again. Resolves when those that wait for a lane
   * were sent, or their time was over.
   */
  async close(): Promise<void> {
    this.#isClosed = true;
    await Promise.all(Array.from(this.#waiting, (request) => request.whenDequeued()));
  }

  /** Sends once for all requests and results of this turn of the event loop. */
  #sendSoon(): void {
    if (this.#willSend) return;
    this.#willSend = true;
    // Runs after the callbacks of all promises that one result has settled, so that their requests share a batch again.
    nextTick(() => {
      this.#willSend = false;
      this.#send();
    });
  }

  #send(): void {
    const now = momentOf(this.#clock);
    const collected = this.#collected;
    this.#collected = [];
    for (const request of collected) {
      if (this.#isClosed)
        request.report(neverSentResult(new LockShutdownError('The application has ended.')));
      else request.enqueue(this.#waiting, now);
    }
    while (this.#freeLanes > 0 && this.#waiting.size > 0) {
      const batch = this.#takeBatch(now);
      if (batch.size === 0) break;
      this.#context.runInAsyncScope(() => this.#execute(batch, now));
    }
    if (this.#onSent.length > 0) for (const resolve of this.#onSent.splice(0)) resolve();
  }

  #takeBatch(now: Moment): Batch {
    const batch = new Batch();
    let node = this.#waiting.first;
    while (node && batch.size < this.#maxBatchSize) {
      const { value: request, next } = node;
      const { key } = request.request;
      // After a blocked event loop this may run before the timer of the request.
      if (now.monotonicMs >= request.atMs) request.run();
      else if (!batch.keys.has(key) && !this.#unfinishedKeys?.has(key)) {
        batch.add(request);
        request.dequeue(now);
      }
      node = next;
    }
    return batch;
  }

  #execute(batch: Batch, now: Moment): void {
    this.#freeLanes -= 1;
    for (const key of batch.keys) this.#unfinishedKeys?.add(key);
    const onResult: OnResult = (kind, index, result) => {
      const request = batch.get(kind, index);
      if (request) this.#finish(request, result, this.#clock.monotonicMs());
    };
    const end = (resultOf: (kind: RequestKind, index: number) => RequestResult) => {
      this.#freeLanes += 1;
      const nowMs = this.#clock.monotonicMs();
      batch.forEach((request, index) => this.#finish(request, resultOf(request.kind, index), nowMs));
      if (this.#waiting.size > 0) this.#sendSoon();
    };
    this.#callBackend(batch, now, onResult).then(
      (results) => end((kind, index) => results[kind][index] ?? MISSING_RESULT),
      (cause: unknown) => end(() => unknownResult(cause)),
    );
  }

  async #callBackend(batch: Batch, now: Moment, onResult: OnResult): Promise<BatchResult> {
    return await this.#backend.execute(batch.toRequests(), batch.endsAtMs - now.monotonicMs, onResult);
  }

  #finish(request: QueuedRequest, result: RequestResult, nowMs: number): void {
    if (!request.finish(result, nowMs)) return;
    if (this.#unfinishedKeys?.delete(request.request.key) && this.#waiting.size > 0) this.#sendSoon();
  }
}
