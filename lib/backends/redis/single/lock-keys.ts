import { escapePattern } from '../key-scan.js';

const LOCK_SUFFIX = '}:lock';

/** The Redis key of a lock. Its other keys differ only in the suffix, and are on the same slot of a Cluster. */
export const lockKeyOf = (key: string) => `{${key}${LOCK_SUFFIX}`;

/** The Redis keys of a lock, its wait queue in order of arrival, and the details of the waiters. */
export const allKeysOf = (key: string) => [lockKeyOf(key), `{${key}}:line`, `{${key}}:waiting`] as const;

/** The key of a lock, from its Redis key with the prefix of ioredis. */
export const keyOfLockKey = (lockKey: string, keyPrefix: string) =>
  lockKey.slice(keyPrefix.length + 1, -LOCK_SUFFIX.length);

/** The SCAN pattern of the Redis keys of locks whose keys start with the prefix. */
export const lockPatternOf = (prefix: string, keyPrefix: string) =>
  `${escapePattern(keyPrefix)}{${escapePattern(prefix)}*${LOCK_SUFFIX}`;
