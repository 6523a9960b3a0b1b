import {
  type AcquireRequest,
  type AcquireResult,
  type Claim,
  type ReleaseRequest,
  type ReleaseResult,
  type RenewRequest,
  type RenewResult,
  type RequestBatch,
  type UnknownResult,
  neverSentResult,
  unknownResult,
} from '../backend.js';
import type { Moment } from '../clock.js';
import type { LinkedList, LinkedListNode } from '../linked-list.js';
import type { TimerEntry, TimerWheel } from '../timer-wheel.js';
import { StoreTimeoutError } from './store-timeout-error.js';

/**
 * A request with its timeout and the callbacks for its result. `sentAt` is the moment before the request was sent: if
 * it took effect, then later than that.
 */
interface PendingRequest<Request extends Claim, Result> {
  readonly request: Request;
  /** How long the result is of use, in ms from the end of the turn of the event loop in which it was made. */
  readonly timeoutMs: number;
  /** Called exactly once, within the timeout. */
  onResult(result: Result | UnknownResult, sentAt: Moment): void;
  /** Called with a known result that arrives after the timeout. */
  onLateResult?(result: Result, sentAt: Moment): void;
}

export type PendingAcquireRequest = PendingRequest<AcquireRequest, AcquireResult>;
type PendingRenewRequest = PendingRequest<RenewRequest, RenewResult>;
export type PendingReleaseRequest = PendingRequest<ReleaseRequest, ReleaseResult>;
export interface PendingRequests {
  readonly release: PendingReleaseRequest;
  readonly renew: PendingRenewRequest;
  readonly acquire: PendingAcquireRequest;
}

export type RequestKind = keyof PendingRequests;
export type RequestResult = ReleaseResult | RenewResult | AcquireResult;

const NOT_SENT: Moment = { monotonicMs: 0, wallMs: 0 };

/** A pending request inside of the batcher. Only it decides whether its time is over. */
export class QueuedRequest implements TimerEntry {
  readonly kind: RequestKind;
  wheelNode: LinkedListNode<TimerEntry> | undefined;
  readonly #pending: PendingRequest<Claim, RequestResult>;
  readonly #timerWheel: TimerWheel;
  #queueNode: LinkedListNode<QueuedRequest> | undefined;
  #onDequeued: (() => void) | undefined;
  #sentAt = NOT_SENT;
  #atMs = Infinity;
  /** The caller has its result. */
  #isOver = false;
  /** The backend has nothing more to do for it. */
  #isFinished = false;

  constructor(kind: RequestKind, pending: PendingRequest<Claim, RequestResult>, timerWheel: TimerWheel) {
    this.kind = kind;
    this.#pending = pending;
    this.#timerWheel = timerWheel;
  }

  get request(): Claim {
    return this.#pending.request;
  }

  /** When its time is over, on the monotonic clock. */
  get atMs(): number {
    return this.#atMs;
  }

  enqueue(queue: LinkedList<QueuedRequest>, now: Moment): void {
    this.#sentAt = now;
    this.#atMs = now.monotonicMs + this.#pending.timeoutMs;
    this.#queueNode = queue.add(this);
    this.#timerWheel.add(this);
  }

  /** Must be called before the request is sent. Returns whether it was still queued. */
  dequeue(now: Moment): boolean {
    if (!this.#queueNode?.remove()) return false;
    this.#queueNode = undefined;
    this.#sentAt = now;
    this.#onDequeued?.();
    return true;
  }

  /** Resolves when the request has left the queue. */
  whenDequeued(): Promise<void> {
    return new Promise((resolve) => (this.#onDequeued = resolve));
  }

  /** Runs when its time is over. */
  run(): void {
    const cause = new StoreTimeoutError(this.#pending.timeoutMs);
    this.report(this.dequeue(this.#sentAt) ? neverSentResult(cause) : unknownResult(cause));
  }

  /** Takes the result of the backend. Only the first one counts. Returns whether it was the first. */
  finish(result: RequestResult, nowMs: number): boolean {
    if (this.#isFinished) return false;
    this.#isFinished = true;
    // After a blocked event loop the result may be processed before the timer. So the clock decides, not their order.
    if (nowMs > this.#atMs) this.run();
    if (this.#isOver && result.kind !== 'unknown') this.#pending.onLateResult?.(result, this.#sentAt);
    this.report(result);
    return true;
  }

  /** Gives the caller its result, unless it has one. */
  report(result: RequestResult): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#timerWheel.remove(this);
    this.#pending.onResult(result, this.#sentAt);
  }
}

/** Requests that are sent to the store in one call. No key appears twice, so requests for one key keep their order. */
export class Batch {
  readonly #requests: { readonly [Kind in RequestKind]: QueuedRequest[] } = {
    release: [],
    renew: [],
    acquire: [],
  };
  readonly #keys = new Set<string>();
  #endsAtMs = 0;

  get size(): number {
    return this.#keys.size;
  }

  /** The keys of its requests. */
  get keys(): ReadonlySet<string> {
    return this.#keys;
  }

  /** When the last result is of no use any more, on the monotonic clock. */
  get endsAtMs(): number {
    return this.#endsAtMs;
  }

  add(request: QueuedRequest): void {
    this.#requests[request.kind].push(request);
    this.#keys.add(request.request.key);
    this.#endsAtMs = Math.max(this.#endsAtMs, request.atMs);
  }

  get(kind: RequestKind, index: number): QueuedRequest | undefined {
    return this.#requests[kind][index];
  }

  forEach(visit: (request: QueuedRequest, index: number) => void): void {
    const { release, renew, acquire } = this.#requests;
    release.forEach(visit);
    renew.forEach(visit);
    acquire.forEach(visit);
  }

  /** As the backend receives it: without empty lists. */
  toRequests(): RequestBatch {
    const { release, renew, acquire } = this.#requests;
    const requests: { -readonly [Kind in RequestKind]?: RequestBatch[Kind] } = {};
    if (release.length > 0) requests.release = release.map(({ request }) => request);
    if (renew.length > 0) requests.renew = renew.map(({ request }) => request as RenewRequest);
    if (acquire.length > 0) requests.acquire = acquire.map(({ request }) => request as AcquireRequest);
    return requests;
  }
}
