import { LockConfigError, LockLostError } from './errors.js';
import { formatValue } from './format.js';

/** A lock, a run of a job, or whatever else has a fencing token; or a token by itself, such as the number of a term. */
export type Fence = bigint | { readonly fencingToken: bigint; readonly key?: string };

/** As much as a BIGINT column holds. */
const MAX_FENCING_TOKEN = 2n ** 63n - 1n;

/** @throws LockConfigError */
export function fencingTokenOf(fence: Fence): bigint {
  const token: unknown =
    typeof fence === 'bigint' ? fence : (fence as { fencingToken: bigint } | undefined)?.fencingToken;
  if (typeof token === 'bigint' && token >= 0n && token <= MAX_FENCING_TOKEN) return token;
  throw new LockConfigError(
    `Expected a lock, or its fencing token as a bigint, got ${formatValue(fence)}. Hand on the lock under which you write.`,
  );
}

/**
 * The token of a lock that is about to be used.
 *
 * @throws LockLostError if the lock is known to be no longer valid; LockConfigError
 */
export function validFencingTokenOf(fence: Fence): bigint {
  const token = fencingTokenOf(fence);
  if (!hasValidity(fence) || fence.isValid()) return token;
  fence.throwIfLost?.();
  throw new LockLostError(`Lock "${fence.key}" is not ours: it was released.`, { key: fence.key });
}

interface WithValidity {
  readonly key: string;
  isValid(): boolean;
  throwIfLost?(): void;
}

const hasValidity = (fence: Fence): fence is Fence & WithValidity =>
  typeof fence === 'object' && 'isValid' in fence && typeof fence.isValid === 'function';

/** The error for a read or a write whose fencing token is older than the newest one seen at that place. */
export function staleTokenError(fence: Fence, target: string, newestToken: bigint): LockLostError {
  const key = typeof fence === 'bigint' ? undefined : fence.key;
  return new LockLostError(
    `Refused ${target} with the fencing token ${fencingTokenOf(fence)}: ${newestToken} has written there, so the lock ` +
      `was lost and somebody else had it. Begin anew, with a new lock and what is there now.`,
    key === undefined ? {} : { key },
  );
}
