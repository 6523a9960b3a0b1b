import { Waiter, type AcquireParams } from './waiter.js';
import type { ReleaseNotice } from '../backend.js';
import { Grant } from '../leases/grant.js';
import { type NotGranted, isConnectionLost } from '../requests/acquirer.js';
import type { Lease } from '../leases/lease.js';
import { WaitQueue, type WaitQueueParts } from './wait-queue.js';

/** After calls may have been missed, all who wait look within this time. */
const RETRY_WITHIN_MS = 200;

/** Those of this process who want keys that others hold, each key with a line of its own. */
export class WaitQueues {
  readonly #parts: WaitQueueParts;
  readonly #queues = new Map<string, WaitQueue>();
  /** Those who ask once and do not stand in line. */
  readonly #unqueuedWaiters = new Set<Waiter>();

  constructor(parts: WaitQueueParts) {
    this.#parts = parts;
  }

  /** How many wait for the key. */
  countWaiters(storeKey: string): number {
    return this.#queues.get(storeKey)?.size ?? 0;
  }

  /** What this process holds of the key, as it passes from caller to caller. */
  grantAt(storeKey: string): Grant | undefined {
    return this.#queues.get(storeKey)?.grant;
  }

  /** Whoever waits for the key, or for any, looks when it may be free. */
  onReleaseNotice({ key, inMs = 0 }: ReleaseNotice): void {
    if (key !== undefined) this.#queues.get(key)?.onReleaseNotice(inMs);
    else
      for (const queue of this.#queues.values())
        queue.onReleaseNotice(inMs + Math.random() * RETRY_WITHIN_MS);
  }

  /** Asks until the key is granted, the time is over, or a signal ends the wait with its reason. */
  acquire(params: AcquireParams): Promise<Lease> {
    const waiter = new Waiter(params, this.#parts.clock);
    this.#queueOf(params).enqueue(waiter);
    return waiter.outcome;
  }

  /** Asks once, for who does not stand in line. */
  async tryAcquire(params: AcquireParams): Promise<Lease | NotGranted> {
    const { timerWheel, clock, acquirer, releaser, instance } = this.#parts;
    const waiter = new Waiter(params, clock);
    const { key, storeKey, leaseMs } = params;
    // The holder of a question whose connection was lost is being given back, so the next one is another.
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

  /** Sends away everybody. */
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
