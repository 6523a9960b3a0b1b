import { randomBytes } from 'node:crypto';
import type { AcquireRequest } from '../../../core/backend.js';
import { systemClock } from '../../../core/clock.js';
import type { Keyspace } from '../keyspace.js';
import type { KeyValue } from '../rpc/messages.js';
import { decodeJson } from '../stored-json.js';

/** etcd orders all writes by their revision. A grant has this many fencing tokens from its revision on. */
export const TOKENS_PER_REVISION = 1_024;

/** The value of a lock in etcd, as JSON. */
export interface LockValue {
  /** Without it, this is only a place in the queue of the key. */
  readonly isHeld?: true;
  readonly holder: string;
  readonly instance: string;
  readonly leaseMs: number;
  /** UTC milliseconds of the process that acquired it. */
  readonly sinceMs: number;
  readonly tokenCount: number;
  /** The number of tokens that the newest write of the value has added, from its own revision on. */
  readonly moreTokens?: number;
  /** The newest token, once tokens were added. */
  readonly lastToken?: string;
  /** A tick was claimed with it. */
  readonly isRun?: true;
}

/** A lock, or a place in the queue of a key. */
export interface StoredLock {
  readonly name: Buffer;
  readonly key: string;
  readonly holder: string;
  readonly value: LockValue;
  /** Of all entries of a key, the one that was created first may hold the lock. It also gives the lock its tokens. */
  readonly createRevision: bigint;
  readonly modRevision: bigint;
  readonly leaseId: string;
}

export function parseLock(keyspace: Keyspace, entry: KeyValue): StoredLock;
export function parseLock(keyspace: Keyspace, entry: KeyValue | undefined): StoredLock | undefined;
export function parseLock(keyspace: Keyspace, entry: KeyValue | undefined): StoredLock | undefined {
  if (!entry) return undefined;
  const value = decodeJson(entry) as LockValue;
  return {
    name: entry.key,
    key: keyspace.keyOfLock(entry.key),
    holder: value.holder,
    value,
    createRevision: BigInt(entry.create_revision),
    modRevision: BigInt(entry.mod_revision),
    leaseId: entry.lease,
  };
}

/** The entry of this holder, of those of its key. */
export const findLock = (keyspace: Keyspace, entries: readonly KeyValue[], holder: string) =>
  entries.map((entry) => parseLock(keyspace, entry)).find((lock) => lock.holder === holder);

export const valueOf = (
  { holder, instance, leaseMs, tokenCount = 1 }: AcquireRequest,
  isHeld: boolean,
): LockValue => ({
  ...(isHeld && { isHeld }),
  ...{ holder, instance, leaseMs, tokenCount, sinceMs: Math.floor(systemClock.wallMs()) },
});

export const encodeValue = (value: LockValue): Buffer => Buffer.from(JSON.stringify(value));

const tokenAt = (revision: bigint) => revision * BigInt(TOKENS_PER_REVISION);

export const firstTokenOf = (createRevision: bigint): bigint => tokenAt(createRevision);

/** The first token that a write of this revision adds. */
export const addedTokenOf = (modRevision: bigint): bigint => tokenAt(modRevision);

export function lastTokenOf({ value, createRevision, modRevision }: StoredLock): bigint {
  const { moreTokens, lastToken, tokenCount } = value;
  if (moreTokens) return addedTokenOf(modRevision) + BigInt(moreTokens - 1);
  return lastToken === undefined ? firstTokenOf(createRevision) + BigInt(tokenCount - 1) : BigInt(lastToken);
}

/** The value for another write. Tokens that count from the revision of this one are written out. */
export function valueForRewrite(lock: StoredLock, change: Partial<LockValue> = {}): LockValue {
  const { moreTokens, ...rest } = lock.value;
  return { ...rest, ...(moreTokens && { lastToken: String(lastTokenOf(lock)) }), ...change };
}

export const randomId = () => randomBytes(9).toString('base64url');
