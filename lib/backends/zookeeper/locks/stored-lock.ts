import type { AcquireRequest } from '../../../core/backend.js';
import { systemClock } from '../../../core/clock.js';
import type { LockEntry } from '../keyspace.js';
import type { NodeData } from '../wire/operations.js';
import { ZookeeperError } from '../wire/zookeeper-errors.js';

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
  value: decodeValue(data, entry.path),
  ...{ czxid: stat.czxid, version: stat.version, owner: stat.owner },
});

export const valueOf = (
  { instance, leaseMs, tokenCount = 1 }: AcquireRequest,
  isHeld: boolean,
): LockValue => ({
  ...(isHeld && { isHeld }),
  ...{ instance, leaseMs, tokenCount, sinceMs: Math.floor(systemClock.wallMs()) },
});

/** @throws ZookeeperError without the content, which may be a secret of others */
function decodeValue(data: Buffer, path: string): LockValue {
  const value = parseJson(data.toString());
  if (typeof value === 'object' && value !== null) return value as LockValue;
  throw new ZookeeperError(`"${path}" holds no lock of this library: delete this node of ZooKeeper`);
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

export const encodeValue = (value: LockValue): Buffer => Buffer.from(JSON.stringify(value));

export const firstTokenOf = (czxid: bigint): bigint => czxid * BigInt(TOKENS_PER_TRANSACTION);

export const lastTokenOf = ({ czxid, value }: StoredLock): bigint =>
  firstTokenOf(czxid) + BigInt(value.tokenCount - 1);
