import type { BatchResult, RequestBatch } from '../backend.js';
import { type UnknownResult, neverSentResult, unknownResult } from '../unknown-result.js';
import type { Moment } from '../clock.js';
import type { LinkedList, LinkedListNode } from '../linked-list.js';
import type { TimerWheel, WheelTimer } from '../timer-wheel.js';
import { StoreTimeoutError } from './store-timeout.js';

export type RequestKind = keyof RequestBatch;
type RequestOf<Kind extends RequestKind> = NonNullable<RequestBatch[Kind]>[number];
export type ResultOf<Kind extends RequestKind> = BatchResult[Kind][number];

/** A request without a result yet, with its timeout. Only it decides whether its time is over. */
export abstract class PendingRequest<Kind extends RequestKind = RequestKind> {
  readonly kind: Kind;
  readonly request: RequestOf<Kind>;
  /** How long the result is of use, in ms from the end of the turn of the event loop in which it was made. */
  readonly timeoutMs: number;
  #turn: Turn | undefined;
  #queueNode: LinkedListNode<PendingRequest> | undefined;
  #onDequeued: (() => void) | undefined;
  #sentAt: Moment | undefined;
  /** The caller has its result. */
  #isOver = false;
  /** The backend has nothing more to do for it. */
  #isFinished = false;

  constructor(kind: Kind, request: RequestOf<Kind>, timeoutMs: number) {
    this.kind = kind;
    this.request = request;
    this.timeoutMs = timeoutMs;
  }

  /**
   * Called exactly once, within the timeout. `sentAt` is the moment before the request was sent: if it took effect, then
   * later than that.
   */
  protected abstract onResult(result: ResultOf<Kind> | UnknownResult, sentAt: Moment): void;

  /** Called when the request has left this process. Never called if that is not known before its result. */
  onSent?(): void;

  /** Called with a known result that arrives after the timeout. */
  protected onLateResult?(result: ResultOf<Kind>, sentAt: Moment): void;

  get isOver(): boolean {
    return this.#isOver;
  }

  /** When its time is over, on the monotonic clock. */
  get atMs(): number {
    return this.#turn ? this.#turn.endedAt.monotonicMs + this.timeoutMs : Infinity;
  }

  joinTurn(turn: Turn): void {
    this.#turn = turn;
  }

  enqueue(queue: LinkedList<PendingRequest>): void {
    this.#queueNode = queue.add(this);
  }

  /** Resolves when the request has left its queue. */
  whenDequeued(): Promise<void> {
    return new Promise((resolve) => (this.#onDequeued = resolve));
  }

  /** Must be called before the request is sent. */
  markSent(now: Moment): void {
    this.#sentAt = now;
    this.#dequeue();
  }

  /** Its time is over. */
  timeOut(): void {
    const cause = new StoreTimeoutError(this.timeoutMs);
    this.report(this.#sentAt ? unknownResult(cause) : neverSentResult(cause));
  }

  /** Takes the result of the backend. Only the first one counts. Returns whether it was the first. */
  finish(result: ResultOf<Kind>, nowMs: number): boolean {
    if (this.#isFinished) return false;
    this.#isFinished = true;
    // After a blocked event loop the result may be processed before the timer. So the clock decides, not their order.
    if (nowMs > this.atMs) this.timeOut();
    if (this.#isOver && result.kind !== 'unknown') this.onLateResult?.(result, this.#sentAt ?? NOT_SENT);
    this.report(result);
    return true;
  }

  /** Gives the caller its result, unless it has one. */
  report(result: ResultOf<Kind> | UnknownResult): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#dequeue();
    this.#turn?.onRequestOver();
    this.onResult(result, this.#sentAt ?? NOT_SENT);
  }

  #dequeue(): void {
    if (!this.#queueNode) return;
    this.#queueNode.remove();
    this.#queueNode = undefined;
    this.#onDequeued?.();
  }
}

const NOT_SENT: Moment = { monotonicMs: 0, wallMs: 0 };

/** The requests of one turn of the event loop, with one timer for the timeouts of all. */
export class Turn {
  readonly requests: PendingRequest[] = [];
  /** Requests without a result. */
  #open = 0;
  #endedAt = NOT_SENT;
  #timer: WheelTimer | undefined;
  readonly #timerWheel: TimerWheel;

  constructor(timerWheel: TimerWheel) {
    this.#timerWheel = timerWheel;
  }

  /** The timeouts count from here. */
  get endedAt(): Moment {
    return this.#endedAt;
  }

  add(request: PendingRequest): void {
    request.joinTurn(this);
    this.requests.push(request);
    this.#open += 1;
  }

  end(now: Moment): void {
    this.#endedAt = now;
    this.#setTimer();
  }

  onRequestOver(): void {
    this.#open -= 1;
    if (this.#open === 0) this.#timer?.cancel();
  }

  /** The time of at least one request is over. */
  onDue(): void {
    const nowMs = this.#timer?.atMs ?? 0;
    for (const request of this.requests) if (!request.isOver && request.atMs <= nowMs) request.timeOut();
    if (this.#open > 0) this.#setTimer();
  }

  #setTimer(): void {
    let atMs = Infinity;
    for (const request of this.requests) if (!request.isOver) atMs = Math.min(atMs, request.atMs);
    this.#timer = this.#timerWheel.add(atMs, this);
  }
}
