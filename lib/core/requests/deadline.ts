import { systemClock } from '../clock.js';
import { StoreTimeoutError } from './store-timeout.js';

/** The time that a request of several round trips has. */
export interface Deadline {
  /** @throws StoreTimeoutError if it is over */
  readonly leftMs: number;
}

export function deadlineIn(timeoutMs: number): Deadline {
  const endsAtMs = systemClock.monotonicMs() + timeoutMs;
  return {
    get leftMs() {
      const leftMs = endsAtMs - systemClock.monotonicMs();
      if (leftMs <= 0) throw new StoreTimeoutError(timeoutMs);
      return leftMs;
    },
  };
}
