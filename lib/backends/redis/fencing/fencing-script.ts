import { LockConfigError } from '../../../core/errors.js';
import { type Fence, staleTokenError } from '../../../core/fence.js';
import { formatValue } from '../../../core/format.js';
import type { OptionErrors } from '../../../core/option-errors.js';
import { isClient } from '../source-options.js';

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

/** Collects what is wrong with the arguments that both functions have. */
export function collectFencedErrors(errors: OptionErrors, client: unknown, key: unknown): void {
  errors.expect('client', client ?? null, 'a Redis or Cluster client of ioredis', isClient(client));
  errors.expect('key', key ?? null, 'a string that is not empty', typeof key === 'string' && key !== '');
}

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

const TOKEN_KEY_SUFFIX = ':fencing-token';

/**
 * The key for the fencing token of a key, on the same slot of a Cluster. Both keys are without the prefix of ioredis, which
 * it adds to each.
 *
 * @throws LockConfigError if there is no such key on the same slot
 */
export function tokenKeyOf(key: string, keyPrefix: string): string {
  const fullKey = keyPrefix + key;
  const tokenKey =
    hashTagOf(fullKey) === fullKey ? `{${fullKey}}${TOKEN_KEY_SUFFIX}` : `${key}${TOKEN_KEY_SUFFIX}`;
  if (hashTagOf(keyPrefix + tokenKey) === hashTagOf(fullKey)) return tokenKey;
  throw new LockConfigError(
    `Expected a key whose fencing token can be on the same slot of a Cluster, got '${fullKey}'. Give it a hash tag, such as '{${key.replace(/[{}]/g, '')}}'.`,
    { key },
  );
}

/** The part of a key that decides its slot: between the first `{` and the next `}`, or else the whole key. */
const hashTagOf = (key: string) => /^[^{]*\{([^}]+)\}/.exec(key)?.[1] ?? key;
