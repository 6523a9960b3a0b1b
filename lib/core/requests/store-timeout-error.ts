import { SharedAcrossCopies } from '../package-copies.js';

/** The store did not answer in time. It may only be slow, so waiters stay queued. */
@SharedAcrossCopies('StoreTimeoutError')
export class StoreTimeoutError extends Error {
  constructor(timeoutMs: number) {
    super(`no answer from the store within ${Math.round(timeoutMs)} ms`);
    this.name = 'StoreTimeoutError';
  }
}
