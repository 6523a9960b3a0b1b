import type { AcquireRequest } from '../../../core/backend.js';
import type { Keyspace } from '../keyspace.js';
import type { RequestOp, ResponseOp } from '../rpc/messages.js';
import {
  isEmpty,
  isNoneOlder,
  keysOf,
  put,
  read,
  readOldest,
  transaction,
  wasCreatedAt,
} from '../rpc/operations.js';
import { type StoredLock, encodeValue, parseLock, valueOf } from './stored-lock.js';

export interface AcquisitionParts {
  readonly keyspace: Keyspace;
  readonly name: Buffer;
  readonly leaseId: string;
  /** The revision of the place in the queue, if there is one. */
  readonly queuedAt: bigint | undefined;
}

/** Acquires the key in one step: if it is free and nobody waits, or if all others came later. Otherwise it queues. */
export function encodeAcquisition(request: AcquireRequest, parts: AcquisitionParts): RequestOp {
  const { keyspace, name, leaseId, queuedAt } = parts;
  const all = keyspace.locksOf(request.key);
  const grant = put(name, encodeValue(valueOf(request, true)), leaseId);
  const lookAround = [read({ key: name }), readOldest(all)];
  if (queuedAt !== undefined)
    return transaction([wasCreatedAt(name, queuedAt), isNoneOlder(all, queuedAt)], [grant], lookAround);
  const queue = put(name, encodeValue(valueOf(request, false)), leaseId);
  const mayWait = (request.retryWithinMs ?? 0) > 0;
  // What is there already, such as a grant whose reply was lost, stays as it is.
  const ifNew = mayWait ? [transaction([wasCreatedAt(name, 0n)], [queue])] : [];
  return transaction([isEmpty(all)], [grant], [...ifNew, ...lookAround]);
}

/** What the store replied to an acquisition. */
export interface AcquisitionReply {
  readonly isGranted: boolean;
  /** The entry of this holder, if it was not granted now. */
  readonly own: StoredLock | undefined;
  /** The oldest entry of the key: the holder, or the caller whose turn it is. */
  readonly oldest: StoredLock | undefined;
}

export function parseAcquisition(keyspace: Keyspace, response: ResponseOp | undefined): AcquisitionReply {
  const { succeeded = false, responses = [] } = response?.response_txn ?? {};
  if (succeeded) return { isGranted: true, own: undefined, oldest: undefined };
  const [own, oldest] = responses.slice(-2).map((one) => parseLock(keyspace, keysOf(one)[0]));
  return { isGranted: false, own, oldest };
}
