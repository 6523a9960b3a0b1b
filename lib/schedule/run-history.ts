import type { JobLocks } from '../core/job-locks.js';
import { type StoredRun, decodeRecords } from './run-record.js';

/**
 * Reads the last runs of a job on all replicas, the newest first.
 *
 * @throws LockUnavailableError if the store does not answer
 */
export const readRunHistory = async (jobs: JobLocks, jobKey: string): Promise<readonly StoredRun[]> =>
  decodeRecords(await jobs.readHistory(jobKey));
