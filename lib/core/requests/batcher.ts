import { AsyncResource } from 'node:async_hooks';
import type { BatchResult, LockBackend, OnResult } from '../backend.js';
import { neverSentResult, unknownResult } from '../unknown-result.js';
import type { BackendUse } from '../backend-use.js';
import { type Clock, type Moment, momentOf } from '../clock.js';
import { LockShutdownError } from '../errors.js';
import { nextTick, setImmediate } from '../real-timers.js';
import type { TimerWheel } from '../timer-wheel.js';
import { Batch } from './batch.js';
import { LaneQueue } from './lane-queue.js';
import { type PendingRequest, type RequestKind, type ResultOf, Turn } from './pending-request.js';

/** The longest timeout of a request. Since requests share a batch, each one may reach the store this late. */
export const MAX_REQUEST_TIMEOUT_MS = 5_000;

/** After so many batches, the batcher checks whether timers and I/O of the process have had their turn. */
const CHECK_INTERVAL = 16;

const MISSING_RESULT = unknownResult(new Error('the backend returned no result for a request'));

interface BatcherParts {
  readonly backend: LockBackend;
  readonly backendUse: BackendUse;
  readonly clock: Clock;
  readonly timerWheel: TimerWheel;
}

/**
 * Sends requests to the backend in batches. Every request gets a result within its timeout and never a rejection. After
 * an error or a timeout the result is `unknown`, since the request may have taken effect or may still do so, unless it
 * still waited to be sent.
 *
 * All requests of one turn of the event loop are sent in one batch at its end, so a single request is not delayed. Once
 * all lanes of the backend are busy, requests are collected until one is free.
 */
export class Batcher {
  readonly #backend: LockBackend;
  readonly #backendUse: BackendUse;
  readonly #clock: Clock;
  readonly #timerWheel: TimerWheel;
  /** A batch has requests of many callers, so it runs in the asynchronous context of none of them. */
  readonly #context = new AsyncResource('LockBatcher');
  readonly #preferredBatchSize: number;
  readonly #maxBatchSize: number;
  /** The requests of this turn of the event loop. */
  #turn: Turn | undefined;
  /** Without lanes each batch is sent at once, and the backend itself keeps the order of its calls. */
  readonly #lanes: LaneQueue | undefined;
  #willSend = false;
  #batchCount = 0;
  /** Whether timers and I/O have had their turn since the last check. */
  #hadTurn = true;
  #isClosed = false;

  constructor({ backend, backendUse, clock, timerWheel }: BatcherParts) {
    const { lanes, preferredBatchSize = Infinity, maxBatchSize = Infinity } = backend;
    this.#backend = backend;
    this.#backendUse = backendUse;
    this.#preferredBatchSize = preferredBatchSize;
    this.#maxBatchSize = maxBatchSize;
    this.#lanes = lanes === undefined ? undefined : new LaneQueue(lanes, maxBatchSize);
    this.#clock = clock;
    this.#timerWheel = timerWheel;
  }

  send(request: PendingRequest): void {
    this.#turn ??= new Turn(this.#timerWheel);
    this.#turn.add(request);
    // No caller waits for a renewal, so renewals can wait for the end of the turn.
    if (request.kind !== 'renew' && this.#turn.requests.length >= this.#preferredBatchSize) this.#send();
    else this.#sendSoon();
  }

  /**
   * Accepts no more requests: one would make the closed backend connect again. Resolves when those that wait for a lane
   * were sent, or their time was over.
   */
  async close(): Promise<void> {
    this.#isClosed = true;
    await this.#lanes?.whenEmpty();
  }

  /** Sends once for all requests and results of this turn of the event loop. */
  #sendSoon(): void {
    if (this.#willSend) return;
    this.#willSend = true;
    // Runs after the callbacks of all promises that one result has settled, so that their requests share a batch again.
    if (this.#mustYield()) setImmediate(this.#onTurnEnd);
    else nextTick(this.#onTurnEnd);
  }

  /**
   * Whether timers and I/O must come first. Some stores reply without I/O: memory, and SQLite, which runs in this process.
   * A loop that awaits one lock after the other would then keep timers and I/O waiting.
   */
  #mustYield(): boolean {
    this.#batchCount += 1;
    if (this.#batchCount % CHECK_INTERVAL !== 0) return false;
    if (!this.#hadTurn) return true;
    this.#hadTurn = false;
    setImmediate(this.#onNextTurn);
    return false;
  }

  readonly #onTurnEnd = (): void => {
    this.#willSend = false;
    this.#send();
  };

  readonly #onNextTurn = (): void => {
    this.#hadTurn = true;
  };

  #send(): void {
    const now = momentOf(this.#clock);
    const turn = this.#turn;
    this.#turn = undefined;
    turn?.end(now);
    if (turn) this.#accept(turn.requests, now);
    for (let batch = this.#lanes?.takeBatch(now); batch; batch = this.#lanes?.takeBatch(now))
      this.#execute(batch, now);
  }

  #accept(requests: readonly PendingRequest[], now: Moment): void {
    if (this.#isClosed) {
      const refusal = neverSentResult(new LockShutdownError('The application has ended.'));
      for (const request of requests) request.report(refusal);
    } else if (this.#lanes) for (const request of requests) this.#lanes.add(request);
    else this.#sendAtOnce(requests, now);
  }

  /** Sends requests for the same key in separate calls, in their order. */
  #sendAtOnce(requests: readonly PendingRequest[], now: Moment): void {
    let batch = new Batch();
    // Most turns have one request, which needs no set.
    const keys = requests.length > 1 ? new Set<string>() : undefined;
    for (const request of requests) {
      const { key } = request.request;
      if (batch.size >= this.#maxBatchSize || keys?.has(key)) {
        this.#execute(batch, now);
        batch = new Batch();
        keys?.clear();
      }
      request.markSent(now);
      batch.add(request);
      keys?.add(key);
    }
    this.#execute(batch, now);
  }

  #execute(batch: Batch, now: Moment): void {
    this.#backendUse.begin();
    // A backend with lanes says when a request has left.
    const isSent = !this.#lanes && this.#backend.isReady !== false;
    void this.#context.runInAsyncScope(this.#callBackend, this, batch, batch.endsAtMs - now.monotonicMs);
    if (isSent) batch.forEach((request) => request.onSent?.());
  }

  async #callBackend(batch: Batch, timeoutMs: number): Promise<void> {
    let results: BatchResult | undefined;
    let missingResult = MISSING_RESULT;
    try {
      const onResult: OnResult = (kind, index, result) => {
        const request = batch.get(kind, index);
        if (request) this.#finish(request, result, this.#clock.monotonicMs());
      };
      const onReleaseSent = (index: number) => batch.get('release', index)?.onSent?.();
      results = await this.#backend.execute(batch.toRequests(), timeoutMs, onResult, onReleaseSent);
    } catch (cause) {
      missingResult = unknownResult(cause);
    }
    const nowMs = this.#clock.monotonicMs();
    this.#lanes?.onBatchEnd();
    batch.forEach((request, index) =>
      this.#finish(request, results?.[request.kind][index] ?? missingResult, nowMs),
    );
    if (this.#lanes?.canSend) this.#sendSoon();
  }

  #finish(request: PendingRequest, result: ResultOf<RequestKind>, nowMs: number): void {
    if (!request.finish(result, nowMs) || !this.#lanes) return;
    this.#lanes.onRequestFinished(request);
    if (this.#lanes.canSend) this.#sendSoon();
  }
}
