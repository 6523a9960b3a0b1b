import { formatReason } from '../../core/format.js';

export function isReplicaError(cause: unknown): boolean {
  return /\b(READONLY|MASTERDOWN)\b|^ERR WAIT cannot be used with replica/.test(formatReason(cause));
}

export const replicaError = (cause?: unknown) =>
  new Error(
    'this Redis server is a replica, and locks are kept on the primary: give the address of the primary, or for a ' +
      'Sentinel group { options: { name, sentinels } }, which finds it',
    { cause },
  );

/** Replaces messages of ioredis that are about settings of this package, not of the user. */
export function toReadableError(cause: unknown): unknown {
  if (isReplicaError(cause)) return replicaError(cause);
  return isConnectionLost(cause)
    ? new Error('the connection to Redis was lost before it replied', { cause })
    : cause;
}

/** Whether the error of ioredis means that the connection was lost before the reply. */
export const isConnectionLost = (cause: unknown): boolean =>
  /^(Reached the max retries|Stream isn't writeable|Connection is closed)/.test(formatReason(cause));
