import {
  type AcquireResult,
  type AcquireRequest,
  type BatchResult,
  type Claim,
  type ReleaseResult,
  type ReleaseRequest,
  type RenewResult,
  type RenewRequest,
  type RequestBatch,
  type UnknownResult,
  unknownResult,
} from '../backend.js';
import type { Moment } from '../clock.js';
import { StoreTimeoutError } from './store-timeout-error.js';

/** A request for the store, and who hears of it. `sentAt`: it took effect later than that, if it did. */
interface PendingRequest<Request extends Claim, Result> {
  readonly request: Request;
  /** How long an answer is of use, in ms from the moment it was sent. */
  readonly timeoutMs: number;
  /** Called once, within the limit. */
  onResult(result: Result | UnknownResult, sentAt: Moment): void;
  /** Called with an answer that comes after all. */
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

/** Whatever it asks for. */
type AnyPendingRequest = PendingRequest<Claim, never>;

const MISSING_RESULT = unknownResult(new Error('the backend left a request without an answer'));

/** What goes to the store together: no key twice, so that what is asked of a key keeps its order. */
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

  /** Whether nothing is asked of the key yet. */
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

  /** Settles once the batch has been handed to the backend. */
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

  /** Tells those whose limit is over. Answers the next limit, `Infinity` if there is none. */
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
    // A blocked event loop may see the answer before the timer: the clock decides, not their order.
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
