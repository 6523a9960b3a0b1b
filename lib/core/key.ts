import { LockConfigError } from './errors.js';
import { formatValue } from './format.js';

/** One key, or several of which all are acquired. */
export type LockKey = string | readonly string[];

const MAX_KEY_LENGTH = 512;

/** PostgreSQL cannot store NUL, and every lone surrogate is written as the same replacement character. */
export const isStorable = (text: string) => !text.includes('\0') && text.isWellFormed();

/**
 * Rejects keys that a store cannot keep byte for byte. Two different keys that pass never name the same lock.
 *
 * @throws LockConfigError
 */
export function checkKey(key: unknown): asserts key is string {
  if (typeof key !== 'string' || key.length === 0 || key.length > MAX_KEY_LENGTH) {
    const isLong = typeof key === 'string' && key.length > 0;
    const remedy = isLong ? 'Shorten it, or hash its long part' : `Name what is locked, such as 'order:42'`;
    throw new LockConfigError(
      `Expected the key to be a text of 1 to ${MAX_KEY_LENGTH} characters, got ${formatValue(key)}. ${remedy}.`,
    );
  }
  if (!isStorable(key)) {
    throw new LockConfigError(
      `Expected a key of well-formed Unicode without NUL, got ${formatValue(key)}. Encode binary keys, for example as hex.`,
      { key },
    );
  }
}

/** The most keys of one lock. */
export const MAX_KEYS = 32;

/**
 * Returns several keys without duplicates, in the order in which every process acquires them.
 *
 * @throws LockConfigError
 */
export function checkKeys(keys: unknown): readonly [string, ...string[]] {
  if (!Array.isArray(keys) || keys.length === 0 || keys.length > MAX_KEYS) {
    throw new LockConfigError(
      `Expected a key, or a list of 1 to ${MAX_KEYS} keys, got ${formatValue(keys)}. Lock fewer keys, or one that stands for all.`,
    );
  }
  for (const key of keys) checkKey(key);
  return [...new Set(keys as string[])].sort() as [string, ...string[]];
}
