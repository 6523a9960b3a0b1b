import { type ProviderSource, findMethods, readMethodMetadata } from '../../decorators/decorated-method.js';
import { type LockedMetadata, LOCKED_METADATA } from '../../decorators/locked-kinds.js';
import { getLockServicePropertyToken } from '../../decorators/locked.decorator.js';
import { SINGLETON_CRON_METADATA } from '../singleton-cron.decorator.js';
import { isScheduled, readSchedule } from './nest-scheduler.js';

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
    if (!locked || !isStatic || !isScheduled(method)) continue;
    if (readMethodMetadata(SINGLETON_CRON_METADATA, found).length > 0) continue;
    const decorator = readSchedule(method).timeout ? '@SingletonCron({ deployKey: … })' : '@SingletonCron()';
    jobs.set(method, { location: locked.value.location, decorator });
  }
  return [...jobs.values()];
}
