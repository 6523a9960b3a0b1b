import { LockConfigError, LockLostError } from './errors.js';
import { formatValue } from './format.js';

/** A lock, a job run or anything else with a fencing token; or the token itself, such as the number of a term. */
export type Fence = bigint | { readonly fencingToken: bigint; readonly key?: string };

/** The largest value of a BIGINT column. */
const MAX_FENCING_TOKEN = 2n ** 63n - 1n;

/** @throws LockConfigError if the value is neither a token nor has one */
export function fencingTokenOf(fence: Fence): bigint {
  const token: unknown =
    typeof fence === 'bigint' ? fence : (fence as { fencingToken: bigint } | undefined)?.fencingToken;
  if (typeof token === 'bigint' && token >= 0n && token <= MAX_FENCING_TOKEN) return token;
  throw new LockConfigError(
    `Expected a lock, or its fencing token as a bigint, got ${formatValue(fence)}. Pass the lock under which you write.`,
  );
}

/** Parses a fencing token that was printed as a text, as in JSON; `undefined` if the text cannot be one. */
export function parseFencingToken(text: unknown): bigint | undefined {
  if (typeof text !== 'string' || !/^\d{1,19}$/.test(text)) return undefined;
  const token = BigInt(text);
  return token <= MAX_FENCING_TOKEN ? token : undefined;
}

/**
 * The token of a lock that is about to be used.
 *
 * @throws LockLostError if the lock is no longer valid; LockConfigError if the value is neither a token nor has one
 */
export function validFencingTokenOf(fence: Fence): bigint {
  const token = fencingTokenOf(fence);
  if (!hasValidity(fence) || fence.isValid()) return token;
  fence.throwIfLost?.();
  throw new LockLostError(`Lock "${fence.key}" is no longer held: it was released.`, { key: fence.key });
}

interface WithValidity {
  readonly key: string;
  isValid(): boolean;
  throwIfLost?(): void;
}

const hasValidity = (fence: Fence): fence is Fence & WithValidity =>
  typeof fence === 'object' && 'isValid' in fence && typeof fence.isValid === 'function';

/** The error of a read or write whose fencing token is older than the newest token in the data. */
export function staleTokenError(fence: Fence, target: string, newestToken: bigint): LockLostError {
  const key = typeof fence === 'bigint' ? undefined : fence.key;
  return new LockLostError(
    `Refused ${target} with the fencing token ${fencingTokenOf(fence)}: the newer token ${newestToken} has written there, ` +
      `so the lock was lost and another holder had it. Start again with a new lock and the current data.`,
    key === undefined ? {} : { key },
  );
}
