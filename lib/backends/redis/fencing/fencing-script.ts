import { LockConfigError } from '../../../core/errors.js';
import { type Fence, staleTokenError } from '../../../core/fence.js';
import { formatValue } from '../../../core/format.js';

/** So much longer than its value a token stays, for holders that sleep. */
export const TOKEN_EXTRA_LIFETIME_MS = 86_400_000;

/**
 * The start of a script. In: the token as the first argument, its key as the second key. Ends the script with what is there
 * if it is no older token. Tokens are compared as text, since numbers are not exact beyond 2^53.
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

/** @throws LockLostError or LockConfigError, unless the script found nothing in its way */
export function throwIfRefused(newest: string | null, { lock, key, tokenKey }: FencedRequest): void {
  if (newest === null) return;
  if (!/^\d+$/.test(newest)) {
    throw new LockConfigError(`Expected a fencing token in '${tokenKey}', got ${formatValue(newest)}.`, {
      key,
    });
  }
  throw staleTokenError(lock, `the key '${key}'`, BigInt(newest));
}
