import type { ReleaseNotice } from '../store-notices.js';
import { type NotGranted, isConnectionLost } from '../leases/acquirer.js';
import { Grant } from '../leases/grant.js';
import { LockHandle } from '../leases/lock-handle.js';
import { LinkedList } from '../linked-list.js';
import { type WaitQueueParts, WaitQueue } from './wait-queue.js';
import { type AcquireParams, Waiter } from './waiter.js';

/** When release notices may have been missed, all wait queues retry within this time, each at a random moment. */
const RETRY_WITHIN_MS = 200;

/** A waiter that is not queued has no timer: its only acquisition ends in time by itself. */
const UNQUEUED = {
  onTimeout: () => undefined,
  reject: (waiter: Waiter<LockHandle | NotGranted>, reason: unknown) => waiter.reject(reason),
};

/** The wait queues of this process, one for each key that has waiters or was granted. */
export class WaitQueues {
  readonly #parts: WaitQueueParts;
  readonly #queues = new Map<string, WaitQueue>();
  /** The calls of `tryAcquire`, which send one acquisition and are not queued. */
  readonly #unqueuedWaiters = new LinkedList<Waiter<LockHandle | NotGranted>>();

  constructor(parts: WaitQueueParts) {
    this.#parts = parts;
  }

  /** How many callers of this process wait for the key. */
  countWaiters(storeKey: string): number {
    return this.#queues.get(storeKey)?.size ?? 0;
  }

  /** Whether this process holds the key, or callers of it wait for it. */
  isBusy(storeKey: string): boolean {
    return this.#queues.has(storeKey);
  }

  /** Why the store has not said for so long whether the key is free, if callers of this process wait for that. */
  outageAt(storeKey: string): unknown {
    return this.#queues.get(storeKey)?.outage;
  }

  /** The grant of the key that this process holds. */
  grantAt(storeKey: string): Grant | undefined {
    return this.#queues.get(storeKey)?.grant;
  }

  /** Makes the waiters of the key, or of all keys, retry when the key may be free. */
  onReleaseNotice({ key, inMs = 0 }: ReleaseNotice): void {
    if (key !== undefined) this.#queues.get(key)?.onReleaseNotice(inMs);
    else
      for (const queue of this.#queues.values())
        queue.onReleaseNotice(inMs + Math.random() * RETRY_WITHIN_MS);
  }

  /**
   * Waits until the key is granted.
   *
   * @throws LockTimeoutError after `waitMs`; LockUnavailableError if the store does not answer; the reason of the
   *   signal when it aborts
   */
  acquire(params: AcquireParams): Promise<LockHandle> {
    return this.#queueOf(params).enqueue(params);
  }

  /** Sends one acquisition and does not queue. Rejects with the reason of the signal when it aborts. */
  tryAcquire(params: AcquireParams): Promise<LockHandle | NotGranted> {
    const { acquirer, releaser, instance } = this.#parts;
    const waiter = new Waiter<LockHandle | NotGranted>({ ...params, waitMs: 0 }, this.#parts, UNQUEUED);
    waiter.enter(this.#unqueuedWaiters);
    // After a lost connection the first holder is being withdrawn, so the second try needs a new holder.
    const send = (isRetry: boolean): void => {
      const { key, storeKey, leaseMs, label, suppressedEvents, isOfWriter } = params;
      const request = { key: storeKey, holder: acquirer.newHolder(isOfWriter), leaseMs, instance };
      acquirer.acquire(
        { key, label, suppressedEvents, request, maxResultWaitMs: waiter.maxResultWaitMs },
        (result) => {
          const isGranted = result instanceof Grant;
          if (waiter.isSettled && isGranted) releaser.release(result.request, result.latestStoreEndMs);
          else if (waiter.isSettled) return;
          else if (isGranted) this.#onGranted(result, waiter);
          else if (isConnectionLost(result) && !isRetry) send(true);
          else waiter.resolve(result);
        },
      );
    };
    send(false);
    return waiter.outcome;
  }

  /** Rejects all waiters. */
  rejectAll(reason: unknown): void {
    for (const queue of [...this.#queues.values()]) queue.rejectAll(reason);
    for (const waiter of [...this.#unqueuedWaiters]) waiter.reject(reason);
  }

  #onGranted(grant: Grant, waiter: Waiter<LockHandle | NotGranted>): void {
    const { events, heldLocks } = this.#parts;
    const { params, waitedMs } = waiter;
    const queue = this.#queueOf(params);
    const held = heldLocks.add(grant, { renew: params.renew, queue });
    queue.attach(held);
    const handle = new LockHandle(held, params, { startedAtMs: waiter.startedAtMs, waitedMs });
    waiter.resolve(handle);
    events.emit('acquired', { key: params.key, fencingToken: handle.fencingToken, waitedMs }, params);
  }

  #queueOf(params: AcquireParams): WaitQueue {
    const { storeKey } = params;
    let queue = this.#queues.get(storeKey);
    if (!queue) {
      queue = new WaitQueue(params, this.#parts, this.#remove);
      this.#queues.set(storeKey, queue);
    }
    return queue;
  }

  readonly #remove = (queue: WaitQueue): void => {
    if (this.#queues.get(queue.storeKey) === queue) this.#queues.delete(queue.storeKey);
  };
}
