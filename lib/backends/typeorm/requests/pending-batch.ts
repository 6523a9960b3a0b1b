import {
  type AcquireRequest,
  type AcquireResult,
  type BatchResult,
  type ReleaseRequest,
  type ReleaseResult,
  type RenewRequest,
  type RenewResult,
  type RequestBatch,
  neverSentResult,
  unknownResult,
} from '../../../core/backend.js';
import { type Timer, systemClock } from '../../../core/clock.js';
import { StoreTimeoutError } from '../../../core/requests/store-timeout-error.js';

/** In the order in which the requests of one batch take effect. */
export const REQUEST_KINDS = ['release', 'renew', 'acquire'] as const;
export type RequestKind = (typeof REQUEST_KINDS)[number];

export interface RequestByKind {
  release: ReleaseRequest;
  renew: RenewRequest;
  acquire: AcquireRequest;
}

export interface ResultByKind {
  release: ReleaseResult;
  renew: RenewResult;
  acquire: AcquireResult;
}

/** One request without a result yet. */
export interface PendingRequest<Kind extends RequestKind = RequestKind> {
  readonly batch: PendingBatch;
  readonly kind: Kind;
  readonly request: RequestByKind[Kind];
  /** Its index among the requests of its kind. */
  readonly index: number;
  wasSent: boolean;
}

/** The requests of one call of `execute`, until each has a result or the timeout ends. */
export class PendingBatch {
  readonly result: Promise<BatchResult>;
  readonly pendingRequests: readonly PendingRequest[];
  readonly endsAtMs: number;
  readonly #timeoutMs: number;
  readonly #results: Readonly<Record<RequestKind, (ResultByKind[RequestKind] | undefined)[]>>;
  readonly #timer: Timer;
  #resolve: (results: BatchResult) => void = () => undefined;
  #unsettledCount: number;

  constructor(requestBatch: RequestBatch, timeoutMs: number) {
    const { release = [], renew = [], acquire = [] } = requestBatch;
    this.pendingRequests = [
      ...release.map((request, index) => this.#pendingRequest('release', request, index)),
      ...renew.map((request, index) => this.#pendingRequest('renew', request, index)),
      ...acquire.map((request, index) => this.#pendingRequest('acquire', request, index)),
    ];
    this.#results = {
      release: Array<ReleaseResult>(release.length),
      renew: Array<RenewResult>(renew.length),
      acquire: Array<AcquireResult>(acquire.length),
    };
    this.#unsettledCount = this.pendingRequests.length;
    this.#timeoutMs = timeoutMs;
    this.endsAtMs = systemClock.monotonicMs() + timeoutMs;
    this.result = new Promise((resolve) => (this.#resolve = resolve));
    this.#timer = systemClock.after(timeoutMs, () => this.timeOut());
    if (this.#unsettledCount === 0) this.#finish();
  }

  get isSettled(): boolean {
    return this.#unsettledCount === 0;
  }

  /** The first result counts; later ones are ignored. */
  settle(pending: PendingRequest, result: ResultByKind[RequestKind]): void {
    const results = this.#results[pending.kind];
    if (results[pending.index] !== undefined) return;
    results[pending.index] = result;
    this.#unsettledCount -= 1;
    if (this.#unsettledCount === 0) this.#finish();
  }

  /** Settles all requests without a result: as unknown if they were sent, otherwise as never sent. */
  timeOut(cause: unknown = new StoreTimeoutError(this.#timeoutMs)): void {
    for (const pending of this.pendingRequests)
      this.settle(pending, pending.wasSent ? unknownResult(cause) : neverSentResult(cause));
  }

  #pendingRequest<Kind extends RequestKind>(
    kind: Kind,
    request: RequestByKind[Kind],
    index: number,
  ): PendingRequest<Kind> {
    return { batch: this, kind, request, index, wasSent: false };
  }

  #finish(): void {
    this.#timer.cancel();
    this.#resolve(this.#results as BatchResult);
  }
}
