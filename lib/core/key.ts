import { LockConfigError } from './errors.js';
import { formatValue } from './format.js';

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
      `Expected a key of 1 to ${MAX_KEY_LENGTH} characters, got ${formatValue(key)}. ${remedy}.`,
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

/**
 * The key as the store knows it. The namespace is percent-encoded, so two pairs of namespace and key never give the
 * same text, and the internal keys of the package (with `/` after the namespace) cannot be produced by a user.
 */
export const lockStoreKey = (namespace: string, key: string) => `${encodeURIComponent(namespace)}:${key}`;

/** The most permits of one key. */
export const MAX_PERMITS = 64;

/** Whether it is the number of a permit. */
export const isPermit = (value: unknown): value is number =>
  typeof value === 'number' && Number.isInteger(value) && value >= 0 && value < MAX_PERMITS;

/** What the keys of all permits of a key begin with. It stands for them in lock contexts. */
export const permitBaseKey = (namespace: string, key: string) => `${permitListPrefix(namespace)}${key}`;

export const permitListPrefix = (namespace: string) => `${encodeURIComponent(namespace)}/permit:`;

/**
 * The key of one permit. In the names of Redis, `}` ends the hash tag, so all permits of a key are on one slot of a
 * Cluster, and one request can ask for all.
 */
export const permitStoreKey = (namespace: string, key: string, permit: number) =>
  `${permitBaseKey(namespace, key)}}${permit}`;

/** How many processes may read a key at the same time. Each has one of the slots 1 to 16; slot 0 is for writers. */
export const MAX_READING_PROCESSES = 16;

/** What the keys of all slots of a key that is read and written begin with. */
export const readWriteBaseKey = (namespace: string, key: string) => `${readWriteListPrefix(namespace)}${key}`;

export const readWriteListPrefix = (namespace: string) => `${encodeURIComponent(namespace)}/read-write:`;

/** The key of one slot of a key that is read and written, on one slot of a Cluster like {@link permitStoreKey}. */
export const readWriteStoreKey = (namespace: string, key: string, slot: number) =>
  `${readWriteBaseKey(namespace, key)}}${slot}`;

/** Stands for a read or write lock in lock contexts. */
export const readWriteContextKey = (namespace: string, key: string, mode: 'read' | 'write') =>
  `${readWriteBaseKey(namespace, key)}}${mode}`;

/** The key and the number, of a key of a permit or slot without its prefix. */
export function splitPermitKey(text: string): { readonly key: string; readonly permit: number } {
  const end = text.lastIndexOf('}');
  return { key: text.slice(0, end), permit: Number(text.slice(end + 1)) };
}

/** The key of a job: of its runs and its watermark. */
export const jobStoreKey = (namespace: string, job: string) => `${encodeURIComponent(namespace)}/job:${job}`;

/** The key of an election. Its holder is the leader. */
export const leaderStoreKey = (namespace: string, election: string) =>
  `${encodeURIComponent(namespace)}/leader:${election}`;

/** The key of one tick of a job whose ticks may overlap. The keys of a job sort in the order of their ticks. */
export const tickStoreKey = (namespace: string, job: string, tickMs: number) =>
  `${jobPartKeyPrefix(namespace, job)}${String(tickMs).padStart(13, '0')}`;

/** The key of a job that runs once for each deploy. */
export const deployStoreKey = (namespace: string, job: string, deploy: string) =>
  `${jobPartKeyPrefix(namespace, job)}=${deploy}`;

/** A key without a lock, for checks of the store. */
export const healthStoreKey = (namespace: string) => lockStoreKey(namespace, 'health');

/** The key of the runs of a job that `CronRuns.runNow()` starts. It sorts after the keys of ticks. */
export const manualStoreKey = (namespace: string, job: string) => `${jobPartKeyPrefix(namespace, job)}now`;

/** The prefix of the keys of single ticks, deploys and manual runs of a job. Two jobs never share it. */
export const jobPartKeyPrefix = (namespace: string, job: string) =>
  `${encodeURIComponent(namespace)}/run:${job.replace(/[%@]/g, encodeURIComponent)}@`;

/** The key of the history of a job. */
export const historyStoreKey = (namespace: string, job: string) =>
  `${encodeURIComponent(namespace)}/notes:${job}`;

/** The key of a lock that lasts as long as a transaction. It has no namespace: all users of the table share it. */
export const transactionStoreKey = (key: string) => `/transaction:${key}`;
