import { systemClock } from '../clock.js';
import { StoreTimeoutError } from './store-timeout.js';

/** The time that a request of several round trips has. */
export interface StoreTime {
  /** @throws StoreTimeoutError if it is over */
  readonly leftMs: number;
}

export function storeTime(timeoutMs: number): StoreTime {
  const endsAtMs = systemClock.monotonicMs() + timeoutMs;
  return {
    get leftMs() {
      const leftMs = endsAtMs - systemClock.monotonicMs();
      if (leftMs <= 0) throw new StoreTimeoutError(timeoutMs);
      return leftMs;
    },
  };
}
