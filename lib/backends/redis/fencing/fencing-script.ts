import { LockConfigError } from '../../../core/errors.js';
import { type Fence, staleTokenError } from '../../../core/fence.js';
import { formatValue } from '../../../core/format.js';

/** How much longer than its value a token is kept, for holders that sleep. */
export const TOKEN_EXTRA_LIFETIME_MS = 86_400_000;

/**
 * The start of a script. In: the token as the first argument, the key of the stored token as the second key. Returns the
 * stored token from the script if it is newer, or is no token. Tokens are compared as text, because Lua numbers are not
 * exact above 2^53.
 */
export const TOKEN_CHECK = `
local token = ARGV[1]
local newest = redis.call('GET', KEYS[2])
if newest and not string.find(newest, '^%d+$') then return newest end
if newest and (#newest > #token or #newest == #token and newest > token) then return newest end`;

interface FencedRequest {
  readonly lock: Fence;
  readonly key: string;
  readonly tokenKey: string;
}

/** @throws LockLostError if the script found a newer token; LockConfigError if it found something that is no token */
export function throwIfRefused(newest: string | null, { lock, key, tokenKey }: FencedRequest): void {
  if (newest === null) return;
  if (!/^\d+$/.test(newest)) {
    throw new LockConfigError(`Expected a fencing token in '${tokenKey}', got ${formatValue(newest)}.`, {
      key,
    });
  }
  throw staleTokenError(lock, `the key '${key}'`, BigInt(newest));
}
