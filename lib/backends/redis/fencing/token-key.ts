import { LockConfigError } from '../../../core/errors.js';

const SUFFIX = ':fencing-token';

/**
 * The key for the token of a key, on the same slot of a Cluster. Both are as the caller of ioredis gives them, which puts
 * its prefix before each.
 *
 * @throws LockConfigError
 */
export function tokenKeyOf(key: string, keyPrefix: string): string {
  const fullKey = keyPrefix + key;
  const tokenKey = hashTagOf(fullKey) === fullKey ? `{${fullKey}}${SUFFIX}` : `${key}${SUFFIX}`;
  if (hashTagOf(keyPrefix + tokenKey) === hashTagOf(fullKey)) return tokenKey;
  throw new LockConfigError(
    `Expected a key beside which its fencing token can lie in a Cluster, got '${fullKey}'. Give it a hash tag, such as '{${key.replace(/[{}]/g, '')}}'.`,
    { key },
  );
}

/** What decides about the slot: what stands between the first `{` and the next `}`, unless nothing does. */
const hashTagOf = (key: string) => /^[^{]*\{([^}]+)\}/.exec(key)?.[1] ?? key;
