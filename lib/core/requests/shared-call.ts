import { systemClock } from '../clock.js';
import { replyWithin } from './store-timeout.js';

/** A call to a store that all who need it at the same time share. Each of them waits at most for its own time. */
export class SharedCall {
  readonly #start: (timeoutMs: number) => Promise<void>;
  #running: Promise<void> | undefined;

  constructor(start: (timeoutMs: number) => Promise<void>) {
    this.#start = start;
  }

  /** @throws StoreTimeoutError if it has not ended in time; then it goes on for the others */
  run(timeoutMs: number): Promise<void> {
    this.#running ??= this.#start(timeoutMs).finally(() => (this.#running = undefined));
    const running = this.#running;
    return replyWithin(systemClock, timeoutMs, () => running);
  }
}
