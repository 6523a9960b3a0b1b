import type { RequestBatch } from '../backend.js';
import type { PendingRequest, RequestKind } from './pending-request.js';

/** Requests that are sent to the store in one call. No key appears twice, so requests for one key keep their order. */
export class Batch {
  readonly #pending: { [Kind in RequestKind]?: PendingRequest<Kind>[] } = {};
  #size = 0;
  #endsAtMs = 0;

  get size(): number {
    return this.#size;
  }

  /** When the last result is of no use any more, on the monotonic clock. */
  get endsAtMs(): number {
    return this.#endsAtMs;
  }

  add(pending: PendingRequest): void {
    (this.#pending[pending.kind] ??= []).push(pending as never);
    this.#size += 1;
    this.#endsAtMs = Math.max(this.#endsAtMs, pending.atMs);
  }

  get(kind: RequestKind, index: number): PendingRequest | undefined {
    return this.#pending[kind]?.[index];
  }

  /** As the backend receives it: without empty lists. */
  toRequests(): RequestBatch {
    const { release, renew, acquire } = this.#pending;
    const requests: { -readonly [Kind in RequestKind]?: RequestBatch[Kind] } = {};
    if (release) requests.release = release.map(({ request }) => request);
    if (renew) requests.renew = renew.map(({ request }) => request);
    if (acquire) requests.acquire = acquire.map(({ request }) => request);
    return requests;
  }

  forEach(visit: (pending: PendingRequest, index: number) => void): void {
    const { release, renew, acquire } = this.#pending;
    release?.forEach(visit);
    renew?.forEach(visit);
    acquire?.forEach(visit);
  }
}
