/** The holder of a key, as a store returns it. */
export interface LockRecord {
  readonly holder: string;
  readonly instance: string;
  /** The first fencing token of the grant. */
  readonly fencingToken: bigint;
  /** UTC milliseconds of the store's clock at which the key was granted. */
  readonly sinceMs: number;
  /** The rest of the lease, by the store's clock. */
  readonly remainingMs: number;
  /** The key may be held, or not for as long: its holder must not rely on this record. */
  readonly isUncertain?: true;
  /** The number of acquisitions in the wait queue of the store. Missing if the store has no queue. */
  readonly queued?: number;
}

/** A page of held keys that a store should return. */
export interface ListRequest {
  /** The start of the keys, with their namespace. */
  readonly prefix: string;
  /** The cursor of the page before; without a value, the first page. */
  readonly cursor?: string | undefined;
  /** The largest number of keys on the page. */
  readonly limit: number;
}

export interface LockPage {
  readonly locks: readonly ListedLock[];
  /** For the next page. Missing on the last one. */
  readonly cursor?: string;
}

export interface ListedLock extends LockRecord {
  readonly key: string;
}
