import type { AcquireRequest } from '../../../core/backend.js';
import { systemClock } from '../../../core/clock.js';
import type { LockEntry } from '../keyspace.js';
import type { NodeData } from '../wire/operations.js';
import { decodeJson } from '../stored-json.js';

/** ZooKeeper numbers all transactions. A grant has this many fencing tokens, from the number of the one that created its node on. */
export const TOKENS_PER_TRANSACTION = 1_024;

/** The data of a lock in ZooKeeper, as JSON. */
export interface LockValue {
  /** Without it, this is only a place in the queue of the key. It counts for the oldest entry of a key alone. */
  readonly isHeld?: true;
  readonly instance: string;
  readonly leaseMs: number;
  /** UTC milliseconds of the process that acquired it. */
  readonly sinceMs: number;
  readonly tokenCount: number;
  /** A tick was claimed with it. */
  readonly isRun?: true;
  /** A tick is being claimed with it. */
  readonly isClaim?: true;
}

/** A lock, or a place in the queue of a key, with its data. */
export interface StoredLock extends LockEntry {
  readonly value: LockValue;
  readonly czxid: bigint;
  readonly version: number;
  /** The session that it ends with. */
  readonly owner: bigint;
}

export const storedLockOf = (entry: LockEntry, { data, stat }: NodeData): StoredLock => ({
  ...entry,
  value: decodeJson(data, entry.path) as LockValue,
  ...{ czxid: stat.czxid, version: stat.version, owner: stat.owner },
});

export const valueOf = (
  { instance, leaseMs, tokenCount = 1 }: AcquireRequest,
  isHeld: boolean,
): LockValue => ({
  ...(isHeld && { isHeld }),
  ...{ instance, leaseMs, tokenCount, sinceMs: Math.floor(systemClock.wallMs()) },
});

export const encodeValue = (value: LockValue): Buffer => Buffer.from(JSON.stringify(value));

export const firstTokenOf = (czxid: bigint): bigint => czxid * BigInt(TOKENS_PER_TRANSACTION);

export const lastTokenOf = ({ czxid, value }: StoredLock): bigint =>
  firstTokenOf(czxid) + BigInt(value.tokenCount - 1);
