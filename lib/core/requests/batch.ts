import {
  type AcquireRequest,
  type AcquireResult,
  type BatchResult,
  type Claim,
  type ReleaseRequest,
  type ReleaseResult,
  type RenewRequest,
  type RenewResult,
  type RequestBatch,
  type UnknownResult,
  unknownResult,
} from '../backend.js';
import type { Moment } from '../clock.js';
import { StoreTimeoutError } from './store-timeout-error.js';

/**
 * A request with its timeout and the callbacks for its result. `sentAt` is the moment before the request was sent: if
 * it took effect, then later than that.
 */
interface PendingRequest<Request extends Claim, Result> {
  readonly request: Request;
  /** How long the result is of use, in ms from the moment at which the request was sent. */
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

/** A pending request of any kind. */
type AnyPendingRequest = PendingRequest<Claim, never>;

const MISSING_RESULT = unknownResult(new Error('the backend returned no result for a request'));

/**
 * Pending requests that are sent to the store in one call. No key appears twice, so requests for one key keep their
 * order.
 */
export class Batch {
  readonly #pendingByKind: { readonly [Kind in RequestKind]: PendingRequests[Kind][] } = {
    release: [],
    renew: [],
    acquire: [],
  };
  readonly #keys = new Set<string>();
  #timedOut: Set<AnyPendingRequest> | undefined;
  #onSent: (() => void)[] | undefined;
  #shortestTimeoutMs = Infinity;
  #longestTimeoutMs = 0;

  /** Whether the batch has no request for this key yet. */
  canAdd({ request }: AnyPendingRequest): boolean {
    return !this.#keys.has(request.key);
  }

  add<Kind extends RequestKind>(kind: Kind, pending: PendingRequests[Kind]): void {
    const { request, timeoutMs } = pending;
    this.#pendingByKind[kind].push(pending);
    this.#keys.add(request.key);
    this.#shortestTimeoutMs = Math.min(this.#shortestTimeoutMs, timeoutMs);
    this.#longestTimeoutMs = Math.max(this.#longestTimeoutMs, timeoutMs);
  }

  get size(): number {
    return this.#keys.size;
  }

  get shortestTimeoutMs(): number {
    return this.#shortestTimeoutMs;
  }

  get longestTimeoutMs(): number {
    return this.#longestTimeoutMs;
  }

  /** Resolves when the backend has received the batch. */
  whenSent(): Promise<void> {
    return new Promise((resolve) => (this.#onSent ??= []).push(resolve));
  }

  notifySent(): void {
    for (const notify of this.#onSent ?? []) notify();
  }

  get requests(): RequestBatch {
    const { release, renew, acquire } = this.#pendingByKind;
    const requests: { -readonly [Kind in RequestKind]?: RequestBatch[Kind] } = {};
    if (release.length > 0) requests.release = release.map(({ request }) => request);
    if (renew.length > 0) requests.renew = renew.map(({ request }) => request);
    if (acquire.length > 0) requests.acquire = acquire.map(({ request }) => request);
    return requests;
  }

  complete(batchResult: BatchResult, sentAt: Moment, tookMs: number): void {
    const deliver = <Result extends { kind: string }>(
      pendingRequests: readonly PendingRequest<Claim, Result>[],
      results: readonly (Result | UnknownResult)[],
    ) =>
      pendingRequests.forEach((pending, index) =>
        this.#deliver(pending, results[index] ?? MISSING_RESULT, sentAt, tookMs),
      );
    deliver(this.#pendingByKind.release, batchResult.release);
    deliver(this.#pendingByKind.renew, batchResult.renew);
    deliver(this.#pendingByKind.acquire, batchResult.acquire);
  }

  fail(cause: unknown, sentAt: Moment, tookMs: number): void {
    const result = unknownResult(cause);
    for (const pending of this.#allPending()) this.#deliver<never>(pending, result, sentAt, tookMs);
  }

  /** Gives up the requests whose timeout is over. Returns the next timeout in ms, `Infinity` if there is none. */
  timeOutAfter(elapsedMs: number, sentAt: Moment): number {
    let nextMs = Infinity;
    for (const pending of this.#allPending()) {
      if (pending.timeoutMs <= elapsedMs) this.#timeOut(pending, sentAt);
      else nextMs = Math.min(nextMs, pending.timeoutMs);
    }
    return nextMs;
  }

  #deliver<Result extends { kind: string }>(
    pending: PendingRequest<Claim, Result>,
    result: Result | UnknownResult,
    sentAt: Moment,
    tookMs: number,
  ): void {
    // After a blocked event loop the result may be processed before the timer. So the clock decides, not their order.
    if (tookMs <= pending.timeoutMs && !this.#timedOut?.has(pending)) {
      pending.onResult(result, sentAt);
      return;
    }
    this.#timeOut(pending, sentAt);
    if (result.kind !== 'unknown') pending.onLateResult?.(result as Result, sentAt);
  }

  #timeOut(pending: AnyPendingRequest, sentAt: Moment): void {
    const timedOut = (this.#timedOut ??= new Set());
    if (timedOut.has(pending)) return;
    timedOut.add(pending);
    pending.onResult(unknownResult(new StoreTimeoutError(pending.timeoutMs)), sentAt);
  }

  #allPending(): AnyPendingRequest[] {
    const { release, renew, acquire } = this.#pendingByKind;
    return [...release, ...renew, ...acquire];
  }
}
