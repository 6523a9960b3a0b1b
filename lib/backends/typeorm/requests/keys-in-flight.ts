import type { PendingRequest } from './pending-batch.js';

/** Keys of which a statement may still be on its way, so that a later request for one of them has to wait. */
export class KeysInFlight {
  readonly #pendingRequests = new Map<string, Set<PendingRequest>>();

  has(key: string): boolean {
    return this.#pendingRequests.has(key);
  }

  add(pending: PendingRequest): void {
    const { key } = pending.request;
    const pendingRequests = this.#pendingRequests.get(key);
    if (pendingRequests) pendingRequests.add(pending);
    else this.#pendingRequests.set(key, new Set([pending]));
  }

  /** Says whether this was the last one of its key. */
  remove(pending: PendingRequest): boolean {
    const { key } = pending.request;
    const pendingRequests = this.#pendingRequests.get(key);
    if (!pendingRequests?.delete(pending) || pendingRequests.size > 0) return false;
    return this.#pendingRequests.delete(key);
  }
}
