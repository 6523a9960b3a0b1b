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
    throw new LockConfigError(
      `Expected a key of 1 to ${MAX_KEY_LENGTH} characters, got ${formatValue(key)}. Name what is locked, such as 'order:42'.`,
    );
  }
  if (!isStorable(key)) {
    throw new LockConfigError(
      `Expected a key of well-formed Unicode without NUL, got ${formatValue(key)}. Encode binary keys, for example as hex.`,
      { key },
    );
  }
}

/**
 * The key as the store knows it. The namespace is percent-encoded, so two pairs of namespace and key never give the
 * same text, and the internal keys of the package (with `/` after the namespace) cannot be produced by a user.
 */
export const lockStoreKey = (namespace: string, key: string) => `${encodeURIComponent(namespace)}:${key}`;

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

/** The prefix of the keys of single ticks and deploys of a job. Two jobs never share it. */
export const jobPartKeyPrefix = (namespace: string, job: string) =>
  `${encodeURIComponent(namespace)}/run:${job.replace(/[%@]/g, encodeURIComponent)}@`;

/** The key of the history of a job. */
export const historyStoreKey = (namespace: string, job: string) =>
  `${encodeURIComponent(namespace)}/notes:${job}`;

/** The key of a lock that lasts as long as a transaction. It has no namespace: all users of the table share it. */
export const transactionStoreKey = (key: string) => `/transaction:${key}`;
