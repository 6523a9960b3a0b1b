import { systemClock } from '../clock.js';
import { deadlineIn } from './deadline.js';
import { StoreTimeoutError, replyWithin } from './store-timeout.js';

/** A call to a store that all who need it at the same time share. Each of them waits at most for its own time. */
export class SharedCall {
  readonly #start: (timeoutMs: number) => Promise<void>;
  #running: Promise<void> | undefined;

  constructor(start: (timeoutMs: number) => Promise<void>) {
    this.#start = start;
  }

  /** @throws StoreTimeoutError if it has not ended in time; then it goes on for the others */
  async run(timeoutMs: number): Promise<void> {
    const deadline = deadlineIn(timeoutMs);
    for (;;) {
      const { leftMs } = deadline;
      const isJoined = this.#running !== undefined;
      const running = (this.#running ??= this.#begin(leftMs));
      try {
        await replyWithin(systemClock, leftMs, () => running);
        return;
      } catch (cause) {
        // The time of the caller that began it may be over, which does not concern those that have more.
        if (!isJoined || !(cause instanceof StoreTimeoutError)) throw cause;
      }
    }
  }

  #begin(timeoutMs: number): Promise<void> {
    return this.#start(timeoutMs).finally(() => (this.#running = undefined));
  }
}
