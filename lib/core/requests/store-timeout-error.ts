import { SharedAcrossCopies } from '../package-copies.js';

/** The store is silent or slow. That says nothing against it, so it is no reason to leave the line. */
@SharedAcrossCopies('StoreTimeoutError')
export class StoreTimeoutError extends Error {
  constructor(timeoutMs: number) {
    super(`no answer from the store within ${Math.round(timeoutMs)} ms`);
    this.name = 'StoreTimeoutError';
  }
}
