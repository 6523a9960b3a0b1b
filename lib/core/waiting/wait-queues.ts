import type { ReleaseNotice } from '../backend.js';
import { Grant } from '../leases/grant.js';
import type { Lease } from '../leases/lease.js';
import { type NotGranted, isConnectionLost } from '../requests/acquirer.js';
import { type WaitQueueParts, WaitQueue } from './wait-queue.js';
import { type AcquireParams, Waiter } from './waiter.js';

/** When release notices may have been missed, all wait queues retry within this time, each at a random moment. */
const RETRY_WITHIN_MS = 200;

/** The wait queues of this process, one for each key that has waiters or was granted. */
export class WaitQueues {
  readonly #parts: WaitQueueParts;
  readonly #queues = new Map<string, WaitQueue>();
  /** The calls of `tryAcquire`, which send one acquisition and are not queued. */
  readonly #unqueuedWaiters = new Set<Waiter>();

  constructor(parts: WaitQueueParts) {
    this.#parts = parts;
  }

  /** How many callers of this process wait for the key. */
  countWaiters(storeKey: string): number {
    return this.#queues.get(storeKey)?.size ?? 0;
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
  acquire(params: AcquireParams): Promise<Lease> {
    const waiter = new Waiter(params, this.#parts.clock);
    this.#queueOf(params).enqueue(waiter);
    return waiter.outcome;
  }

  /** Sends one acquisition and does not queue. Rejects with the reason of the signal when it aborts. */
  async tryAcquire(params: AcquireParams): Promise<Lease | NotGranted> {
    const { timerWheel, clock, acquirer, releaser, instance } = this.#parts;
    const waiter = new Waiter(params, clock);
    const { key, storeKey, leaseMs } = params;
    // After a lost connection the first holder is being withdrawn, so the second try needs a new holder.
    const send = (onResult: (result: Grant | NotGranted) => void) => {
      const request = { key: storeKey, holder: acquirer.newHolder(), leaseMs, instance };
      acquirer.acquire({ key, request, waitMs: 0 }, { onResult });
    };
    const pendingResult = new Promise<Grant | NotGranted>((resolve) =>
      send((result) => (isConnectionLost(result) && !waiter.isSettled ? send(resolve) : resolve(result))),
    );
    waiter.listenToSignal({ reject: (_, reason) => waiter.reject(reason, timerWheel) });
    this.#unqueuedWaiters.add(waiter);
    try {
      const result = await Promise.race([pendingResult, waiter.outcome]);
      return result instanceof Grant ? this.#onGranted(result, waiter) : result;
    } catch (reason) {
      void pendingResult.then((lateResult) => {
        if (lateResult instanceof Grant) releaser.release(lateResult.claim, lateResult.lastsUntilMs);
      });
      throw reason;
    } finally {
      this.#unqueuedWaiters.delete(waiter);
      waiter.stopWaiting(timerWheel);
    }
  }

  /** Rejects all waiters. */
  rejectAll(reason: unknown): void {
    for (const queue of [...this.#queues.values()]) queue.rejectAll(reason);
    for (const waiter of this.#unqueuedWaiters) waiter.reject(reason, this.#parts.timerWheel);
  }

  #onGranted(grant: Grant, { params, waitedMs }: Waiter): Lease {
    const { events, heldLocks } = this.#parts;
    const lease = heldLocks.add(grant, params);
    this.#queueOf(params).attachGrant(grant);
    events.emit('acquired', { key: params.key, fencingToken: lease.fencingToken, waitedMs });
    return lease;
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

  readonly #remove = (storeKey: string, queue: WaitQueue): void => {
    if (this.#queues.get(storeKey) === queue) this.#queues.delete(storeKey);
  };
}
