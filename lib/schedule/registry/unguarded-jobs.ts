import { readMethodMetadata } from '../../decorators/decorated-method.js';
import { type ProviderSource, findMethods } from '../../decorators/find-methods.js';
import { type LockedMetadata, LOCKED_METADATA } from '../../decorators/locked-kinds.js';
import { getLockServicePropertyToken } from '../../decorators/locked.decorator.js';
import { ELECTION_METADATA } from '../../election/election.decorators.js';
import { SINGLETON_CRON_METADATA } from '../singleton-cron.decorator.js';
import { isScheduled, readSchedule } from './nest-scheduler.js';

/** What the decorators store with which one replica at a time fires a method. */
const ONCE_IN_CLUSTER = [SINGLETON_CRON_METADATA, ELECTION_METADATA];

/** A scheduled method with `@Locked`, but without `@SingletonCron`: it runs in every replica. */
interface UnguardedJob {
  readonly location: string;
  /** What to write in place of `@Locked`. */
  readonly decorator: string;
}

/** Finds the scheduled methods that are locked by this module, and not guarded by any. A method is found once. */
export function findUnguardedJobs(
  discovery: ProviderSource,
  moduleName: string | undefined,
): readonly UnguardedJob[] {
  const token = getLockServicePropertyToken(moduleName);
  const jobs = new Map<unknown, UnguardedJob>();
  for (const found of findMethods<LockedMetadata>(discovery, { token, key: LOCKED_METADATA })) {
    const { method, metadata, isStatic } = found;
    const locked = metadata.find(({ value }) => value.service === moduleName);
    // Permits and read locks are meant for several replicas at once.
    if (locked?.value.kind !== 'plain' || !isStatic || !isScheduled(method)) continue;
    if (ONCE_IN_CLUSTER.some((key) => readMethodMetadata(key, found).length > 0)) continue;
    const { timeout, cron } = readSchedule(method);
    if (cron?.disabled) continue;
    const decorator = timeout ? '@SingletonCron({ deployKey: … })' : '@SingletonCron()';
    jobs.set(method, { location: locked.value.location, decorator });
  }
  return [...jobs.values()];
}
