import { LockConfigError } from '../../../core/errors.js';

const SUFFIX = ':fencing-token';

/**
 * The key for the fencing token of a key, on the same slot of a Cluster. Both keys are without the prefix of ioredis, which
 * it adds to each.
 *
 * @throws LockConfigError if there is no such key on the same slot
 */
export function tokenKeyOf(key: string, keyPrefix: string): string {
  const fullKey = keyPrefix + key;
  const tokenKey = hashTagOf(fullKey) === fullKey ? `{${fullKey}}${SUFFIX}` : `${key}${SUFFIX}`;
  if (hashTagOf(keyPrefix + tokenKey) === hashTagOf(fullKey)) return tokenKey;
  throw new LockConfigError(
    `Expected a key whose fencing token can be on the same slot of a Cluster, got '${fullKey}'. Give it a hash tag, such as '{${key.replace(/[{}]/g, '')}}'.`,
    { key },
  );
}

/** The part of a key that decides its slot: between the first `{` and the next `}`, or else the whole key. */
const hashTagOf = (key: string) => /^[^{]*\{([^}]+)\}/.exec(key)?.[1] ?? key;
