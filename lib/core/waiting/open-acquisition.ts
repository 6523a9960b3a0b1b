import type { Taken } from '../backend-results.js';
import type { UnknownResult } from '../unknown-result.js';
import type { Clock } from '../clock.js';
import type { Acquirer, NotGranted } from '../leases/acquirer.js';
import type { Grant } from '../leases/grant.js';
import type { Releaser } from '../leases/releaser.js';
import { MAX_LOCAL_HANDOFFS } from './handoff.js';
import type { Waiter } from './waiter.js';

interface OpenAcquisitionParts {
  readonly clock: Clock;
  readonly acquirer: Acquirer;
  readonly releaser: Releaser;
  /** Shown by `inspect()`. */
  readonly instance: string;
}

/** The pauses between two retries of a taken key grow from the minimum to the maximum. */
const MIN_BACKOFF_MS = 10;
const MAX_BACKOFF_MS = 200;
/**
 * A waiter that gets release notices retries only to keep its place in the store's queue, and in case a notice is lost.
 */
const MAX_NOTIFIED_BACKOFF_MS = 2_000;
/** While the store does not answer. */
const MAX_OUTAGE_BACKOFF_MS = 1_000;
/** Added to the end of another holder's lease, so that many waiters do not retry at the same moment. */
const MAX_JITTER_MS = 10;

/** The store keeps a place in its wait queue for this long without a retry. */
const STORE_QUEUE_PLACE_MS = 6_000;

/**
 * The acquisition of a key for one wait queue, with all its retries until the key is granted. They use the same holder,
 * so that the store keeps its place in the queue.
 */
export class OpenAcquisition {
  readonly #storeKey: string;
  readonly #parts: OpenAcquisitionParts;
  #holder: string | undefined;
  #isQueuedInStore = false;
  #isSent = false;
  #tries = 0;
  #unknownResult: UnknownResult | undefined;
  /** The monotonic time at which the lease of another process ends, by the newest result. */
  #takenUntilMs = 0;

  constructor(storeKey: string, parts: OpenAcquisitionParts) {
    this.#storeKey = storeKey;
    this.#parts = parts;
  }

  /** Whether a try has no result yet. */
  get isSent(): boolean {
    return this.#isSent;
  }

  /** The newest result, if the store did not answer. */
  get unknownResult(): UnknownResult | undefined {
    return this.#unknownResult;
  }

  /** The rest of the lease of another process; 0 or less if none is known. */
  get takenForMs(): number {
    return this.#takenUntilMs - this.#parts.clock.monotonicMs();
  }

  /** Sends a try for this waiter. Calls back with its result, exactly once. */
  send(waiter: Waiter, onResult: (result: Grant | NotGranted) => void): void {
    const { acquirer, instance } = this.#parts;
    const { key, leaseMs, label, purpose, suppressedEvents, isOfWriter } = waiter.params;
    this.#isSent = true;
    this.#tries += 1;
    const request = {
      key: this.#storeKey,
      holder: (this.#holder ??= acquirer.newHolder(isOfWriter)),
      leaseMs,
      instance,
      tokenCount: MAX_LOCAL_HANDOFFS,
      retryWithinMs: waiter.remainingWaitMs > 0 ? STORE_QUEUE_PLACE_MS : undefined,
    };
    const { maxResultWaitMs } = waiter;
    acquirer.acquire({ key, label, purpose, suppressedEvents, request, maxResultWaitMs }, (result) => {
      this.#isSent = false;
      onResult(result);
    });
  }

  /** Returns the pause before the next try, in ms. */
  onTaken(result: Taken): number {
    this.#isQueuedInStore ||= result.isQueued ?? false;
    this.#takenUntilMs = this.#parts.clock.monotonicMs() + result.remainingMs;
    this.#unknownResult = undefined;
    return backoffMs(this.#tries, result);
  }

  /** Returns the pause before the next try, in ms. */
  onUnknown(result: UnknownResult): number {
    this.#unknownResult = result;
    if (result.wasSent !== false) this.leaveHolder();
    return backoffMs(this.#tries, result);
  }

  /** The key was granted in another way. */
  forgetUnknownResult(): void {
    this.#unknownResult = undefined;
  }

  /**
   * The next try has a new holder: the old one is being withdrawn with its place in the store's queue, which may take a
   * while.
   */
  leaveHolder(): void {
    this.#holder = undefined;
    this.#isQueuedInStore = false;
  }

  /** No waiter is left. */
  leaveStoreQueue(): void {
    if (!this.#isQueuedInStore || this.#holder === undefined) return;
    const { clock, releaser } = this.#parts;
    releaser.release(
      { key: this.#storeKey, holder: this.#holder },
      clock.monotonicMs() + STORE_QUEUE_PLACE_MS,
    );
    this.leaveHolder();
  }
}

/** The pause in ms before the next retry. Randomised, so that many waiters do not retry in step. */
function backoffMs(tries: number, result: Taken | UnknownResult): number {
  if (result.kind === 'unknown') return exponentialMs(tries, MAX_OUTAGE_BACKOFF_MS);
  const maxMs = result.willBeNotified
    ? MAX_NOTIFIED_BACKOFF_MS * (0.5 + Math.random() / 2)
    : exponentialMs(tries, MAX_BACKOFF_MS);
  // After a lost race the result may have `remainingMs` 0. That is no reason to retry at once.
  return result.remainingMs > 0
    ? Math.min(maxMs, result.remainingMs + 1 + Math.random() * MAX_JITTER_MS)
    : maxMs;
}

const exponentialMs = (tries: number, maxMs: number) =>
  Math.min(MIN_BACKOFF_MS * 2 ** (tries - 1), maxMs) * (0.5 + Math.random() / 2);

/** The pause in ms that lets waiters of other processes acquire first, in a store without a wait queue. */
export const contendedBackoffMs = () => 5 + Math.random() * 20;
