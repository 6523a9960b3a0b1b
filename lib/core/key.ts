import { LockConfigError } from './errors.js';
import { formatValue } from './format.js';

const MAX_KEY_LENGTH = 512;

/** PostgreSQL cannot store NUL, and every lone surrogate is written as the same replacement character. */
export const isStorable = (text: string) => !text.includes('\0') && text.isWellFormed();

/** Refuses what no store could keep byte for byte. Two different keys that pass never name one lock. */
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
 * The key as the store knows it. The namespace is percent-encoded, so that no two pairs of namespace and key give
 * the same text, and so that what the package keeps for itself (`/` in the namespace) stays its own.
 */
export const lockStoreKey = (namespace: string, key: string) => `${encodeURIComponent(namespace)}:${key}`;

/** The key under which the ticks of a job are kept: no namespace and key of a user can give it. */
export const jobStoreKey = (namespace: string, job: string) => `${encodeURIComponent(namespace)}/job:${job}`;

/** The key whose holder leads: no namespace and key of a user can give it. */
export const leaderStoreKey = (namespace: string, election: string) =>
  `${encodeURIComponent(namespace)}/leader:${election}`;

/** The key of one tick of a job whose ticks may overlap. Those of one job stand in the order of their ticks. */
export const tickStoreKey = (namespace: string, job: string, tickMs: number) =>
  `${jobPartKeyPrefix(namespace, job)}${String(tickMs).padStart(13, '0')}`;

/** The key of what runs once for each deploy. */
export const deployStoreKey = (namespace: string, job: string, deploy: string) =>
  `${jobPartKeyPrefix(namespace, job)}=${deploy}`;

/** How the keys of the parts of a job begin. No two jobs share such a beginning. */
export const jobPartKeyPrefix = (namespace: string, job: string) =>
  `${encodeURIComponent(namespace)}/run:${job.replace(/[%@]/g, encodeURIComponent)}@`;

/** The key under which is noted how the runs of a job went. */
export const historyStoreKey = (namespace: string, job: string) =>
  `${encodeURIComponent(namespace)}/notes:${job}`;
