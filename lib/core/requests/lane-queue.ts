import type { Moment } from '../clock.js';
import { LinkedList } from '../linked-list.js';
import { Batch } from './batch.js';
import type { PendingRequest } from './pending-request.js';

/** The requests for one key that wait, in their order. It exists as long as one waits or is unfinished. */
interface KeyQueue {
  readonly key: string;
  readonly waiting: LinkedList<PendingRequest>;
}

/**
 * Requests that wait for a free lane of the backend. A request also waits for the unfinished one of its key, so that it
 * cannot overtake it on another lane. Keys take turns, so a batch costs the same however many requests wait.
 */
export class LaneQueue {
  readonly #maxBatchSize: number;
  #freeLanes: number;
  readonly #queues = new Map<string, KeyQueue>();
  /** The keys without an unfinished request, in their order. A timeout may leave one without any request. */
  readonly #ready = new LinkedList<KeyQueue>();

  constructor(lanes: number, maxBatchSize: number) {
    this.#freeLanes = lanes;
    this.#maxBatchSize = maxBatchSize;
  }

  add(request: PendingRequest): void {
    const { key } = request.request;
    let queue = this.#queues.get(key);
    if (!queue) {
      queue = { key, waiting: new LinkedList() };
      this.#queues.set(key, queue);
      this.#ready.add(queue);
    }
    request.enqueue(queue.waiting);
  }

  /** Whether {@link takeBatch} may return a batch. */
  get canSend(): boolean {
    return this.#freeLanes > 0 && this.#ready.size > 0;
  }

  /** Returns the next batch, which occupies a lane until {@link onBatchEnd}; `undefined` if none can be sent. */
  takeBatch(now: Moment): Batch | undefined {
    if (!this.canSend) return undefined;
    const batch = new Batch();
    for (let node = this.#ready.first; node && batch.size < this.#maxBatchSize; node = this.#ready.first) {
      node.remove();
      const queue = node.value;
      const request = firstInTime(queue, now);
      if (request) {
        request.markSent(now);
        batch.add(request);
      } else this.#queues.delete(queue.key);
    }
    if (batch.size === 0) return undefined;
    this.#freeLanes -= 1;
    return batch;
  }

  /** The next request for its key may be sent. */
  onRequestFinished({ request: { key } }: PendingRequest): void {
    const queue = this.#queues.get(key);
    if (!queue) return;
    if (queue.waiting.size === 0) this.#queues.delete(key);
    else this.#ready.add(queue);
  }

  onBatchEnd(): void {
    this.#freeLanes += 1;
  }

  /** Resolves when all requests that wait were sent, or their time was over. */
  async whenEmpty(): Promise<void> {
    const waiting = [...this.#queues.values()].flatMap((queue) => [...queue.waiting]);
    await Promise.all(waiting.map((request) => request.whenDequeued()));
  }
}

/** After a blocked event loop a request may be reached before its timer has run. */
function firstInTime({ waiting }: KeyQueue, now: Moment): PendingRequest | undefined {
  while (waiting.first && now.monotonicMs >= waiting.first.value.atMs) waiting.first.value.timeOut();
  return waiting.first?.value;
}
