import type { TickRefused } from './tick.js';
import type { UnknownResult } from './unknown-result.js';

export type AcquireResult = Granted | Taken | TickRefused | UnknownResult;

export interface Granted {
  readonly kind: 'granted';
  /** The first fencing token of the grant. */
  readonly fencingToken: bigint;
  /** With a claimed tick: 1 for the first run of this tick, 2 for the run that takes over from it, … */
  readonly attempt?: number;
}

/** Another holder has the key. */
export interface Taken {
  readonly kind: 'taken';
  /** The rest of the current lease, by the store's clock. */
  readonly remainingMs: number;
  /** The store has queued this holder until it is granted the key, is released, or does not ask again in time. */
  readonly isQueued?: true;
  /** The store will send a notice through `LockBackend.onReleased`, so the waiter need not retry often. */
  readonly willBeNotified?: true;
}

export type RenewResult = Renewed | { readonly kind: 'lost' } | UnknownResult;

export interface Renewed {
  readonly kind: 'renewed';
  /** The first of the fencing tokens that the store added, if any. It is larger than all earlier ones of the grant. */
  readonly fencingToken?: bigint;
}

/** `gone`: the holder did not hold the key. It may have had a place in the wait queue, which is removed. */
export type ReleaseResult = Released | { readonly kind: 'gone' } | UnknownResult;

export interface Released {
  readonly kind: 'released';
  /** Another process waits for the key in a store without a wait queue. This process should let it acquire first. */
  readonly hasWaiters?: true;
}
