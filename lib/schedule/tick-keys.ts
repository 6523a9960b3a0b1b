import { deployStoreKey, manualStoreKey, tickStoreKey } from '../core/store-key.js';
import type { Locks } from '../core/locks.js';
import type { Job } from './job.js';
import type { StoredRun } from './run-record.js';

/**
 * The overlap rule: a run blocks the ticks that share its store key. All ticks of a job share one key, unless they may overlap:
 * then each has its own. So has each deployment.
 */
export const mayOverlap = ({ options: { overlap } }: Job) => overlap === 'allow';

/** The key of a tick that may overlap. */
export const ownStoreKey = (jobKey: string, tickMs: number, { namespace }: Locks) =>
  tickStoreKey(namespace, jobKey, Math.max(tickMs, 0));

/** The keys that a run may have: a deployment may have changed whether the ticks of the job overlap. */
export const possibleStoreKeys = (
  jobKey: string,
  { record: { tick, isManual }, deployKey }: StoredRun,
  locks: Locks,
) => {
  if (deployKey !== undefined) return [deployStoreKey(locks.namespace, jobKey, deployKey)];
  const ownKey = isManual
    ? manualStoreKey(locks.namespace, jobKey)
    : ownStoreKey(jobKey, tick.getTime(), locks);
  return [undefined, ownKey];
};
