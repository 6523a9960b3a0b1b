import type { Compare, KeyValue, RequestOp, ResponseOp } from './messages.js';

/** One key, or all keys from `key` up to `range_end`, which is not included. */
export interface KeyRange {
  readonly key: Buffer;
  readonly range_end?: Buffer;
}

export const put = (key: Buffer, value: Buffer, lease = '0'): RequestOp => ({
  request_put: { key, value, lease },
});

export const read = (range: KeyRange): RequestOp => ({ request_range: range });

/** Reads the key of a range that was created first. */
export const readOldest = (range: KeyRange): RequestOp => ({
  request_range: { ...range, sort_order: 'ASCEND', sort_target: 'CREATE', limit: 1 },
});

export const count = (range: KeyRange): RequestOp => ({ request_range: { ...range, count_only: true } });

/** Deletes the keys and returns what they were. */
export const remove = (range: KeyRange): RequestOp => ({ request_delete_range: { ...range, prev_kv: true } });

export const transaction = (
  compare: readonly Compare[],
  success: readonly RequestOp[],
  failure: readonly RequestOp[] = [],
): RequestOp => ({ request_txn: { compare, success, failure } });

export const isUnchanged = (key: Buffer, revision: bigint | string): Compare => ({
  ...{ target: 'MOD', result: 'EQUAL', key, mod_revision: String(revision) },
});

export const wasCreatedAt = (key: Buffer, revision: bigint): Compare => ({
  ...{ target: 'CREATE', result: 'EQUAL', key, create_revision: String(revision) },
});

/** No key of the range exists. A missing key has the revision 0. */
export const isEmpty = (range: KeyRange): Compare => ({
  ...{ target: 'CREATE', result: 'EQUAL', ...range, create_revision: '0' },
});

/** All keys of the range were created at this revision or later. */
export const isNoneOlder = (range: KeyRange, revision: bigint): Compare => ({
  ...{ target: 'CREATE', result: 'GREATER', ...range, create_revision: String(revision - 1n) },
});

/** All keys of the range were created at this revision or earlier. */
export const isNoneNewer = (range: KeyRange, revision: bigint): Compare => ({
  ...{ target: 'CREATE', result: 'LESS', ...range, create_revision: String(revision + 1n) },
});

export const keysOf = (response: ResponseOp | undefined): readonly KeyValue[] =>
  response?.response_range?.kvs ?? [];

export const removedBy = (response: ResponseOp | undefined): readonly KeyValue[] =>
  response?.response_delete_range?.prev_kvs ?? [];
