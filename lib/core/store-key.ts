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
