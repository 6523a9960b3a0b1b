import type { PendingRequest } from './pending-batch.js';

/** The keys with an unfinished statement. A later request for such a key must wait, so that it cannot overtake. */
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

  /** Returns whether this was the last pending request of its key. */
  remove(pending: PendingRequest): boolean {
    const { key } = pending.request;
    const pendingRequests = this.#pendingRequests.get(key);
    if (!pendingRequests?.delete(pending) || pendingRequests.size > 0) return false;
    return this.#pendingRequests.delete(key);
  }
}
