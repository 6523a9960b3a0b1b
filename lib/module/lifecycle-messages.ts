import { toOneLine } from '../core/format.js';
import type { ResolvedModuleOptions } from '../distributed-lock.options.js';

export const TESTING_IN_PRODUCTION =
  'LockTestingModule is imported and NODE_ENV is "production": its locks are in this process only, so replicas do not ' +
  'exclude each other and jobs run in every replica. Import DistributedLockModule.forRoot() with the backend of your store.';

export const MEMORY_IN_PRODUCTION =
  'The backend is memoryBackend() and NODE_ENV is "production": its locks are in this process only, so replicas do not ' +
  'exclude each other and jobs run in every replica. Use the backend of your store, unless there is one replica.';

export function duplicateModuleMessage(name: string | undefined, count: number): string {
  const which = name === undefined ? 'without a name' : `with the name '${name}'`;
  return (
    `Expected one DistributedLockModule ${which} in the application, found ${count}. Import it once, in the root module, or ` +
    `give each its own name.`
  );
}

export const testingBesideModuleMessage = (count: number) =>
  `Expected one DistributedLockModule in the application, found ${count}, and one is LockTestingModule. In a test, do not import ` +
  `LockTestingModule beside the module of the application, but replace that: ` +
  `.overrideModule(DistributedLockModule).useModule(LockTestingModule.forRoot()).`;

export const missingSchedulerWarning = (keys: readonly string[]) =>
  `The scheduler of @nestjs/schedule is missing, so this process ` +
  (keys.length === 1
    ? 'does not run its job by itself: '
    : `runs none of its ${keys.length} jobs by itself: `) +
  `${keys.slice(0, 10).join(', ')}. Import ScheduleModule.forRoot() in each process that must run them.`;

export const unguardedJobWarning = (location: string, decorator: string) =>
  `${location} does not make this job run once: its timer fires in every replica, and each replica that acquires the lock runs ` +
  `the method, one after the other. To run it in one replica, write ${decorator} in place of @Locked. If every replica must ` +
  `run it, call LockService.withLock() inside the method instead.`;

export const lazyJobWarning = (location: string) =>
  `${location} never runs here: its module was loaded lazily, and @nestjs/schedule looks for jobs at boot only. Import the ` +
  `module at boot, or create the job with CronRuns.guard() and SchedulerRegistry.`;

/** What begins only after the boot: elections, and the jobs that run on a leader or recover ticks. */
export function longBootWarning(
  elapsedMs: number,
  { elections, jobs }: { readonly elections: readonly string[]; readonly jobs: readonly string[] },
): string {
  const waiting = [
    ...(elections.length > 0 ? [`the elections ${quote(elections)}`] : []),
    ...(jobs.length > 0 ? [`the jobs ${quote(jobs)}, as far as they need a leader or recover ticks`] : []),
  ];
  return (
    `The application has not booted after ${elapsedMs} ms. This begins only after every onApplicationBootstrap has ended: ` +
    `${waiting.join('; ')}. A hook that waits for a leader therefore waits forever. Do not await a leader or endless work in a ` +
    `hook, or move the work into a method with @OnElected().`
  );
}

const quote = (names: readonly string[]) => names.map((name) => `"${name}"`).join(', ');

/** Only if there are jobs or elections: their keys are known at boot, and two applications often use the same ones. */
export function defaultNamespaceWarning(
  { namespace, isNamespaceGiven, isTest, backend }: ResolvedModuleOptions,
  givenKeys: readonly string[],
): string | undefined {
  const keys = [...new Set(givenKeys)];
  const isShared = !isTest && backend.name !== 'memory';
  if (isNamespaceGiven || !isShared || keys.length === 0) return undefined;
  const quotedKeys = keys.slice(0, 3).map((key) => `'${key}'`);
  const more = keys.length > 3 ? ` and ${keys.length - 3} more` : '';
  return (
    `The namespace is the default, '${namespace}'. Another application on this store with the same namespace shares the jobs ` +
    `and elections ${quotedKeys.join(', ')}${more}: only one of the two runs them. Set namespace to the name of your ` +
    `application in the options of DistributedLockModule, in all replicas at once; '${namespace}' keeps the current keys.`
  );
}

export const longDrainWarning = (
  keys: readonly string[],
  { drainMs, abortGraceMs }: ResolvedModuleOptions['shutdown'],
) =>
  `The shutdown waits for up to ${drainMs + abortGraceMs} ms, because work under these locks is still running or release() was ` +
  `not called: ${listKeys(keys)}.`;

export const stillHeldWarning = (keys: readonly string[]) =>
  `Still held at the end of shutdown, because their work is still running or release() was not called: ${listKeys(keys)}. ` +
  `Their leases expire by themselves.`;

/** A lock of several parts has its key several times. */
function listKeys(all: readonly string[]): string {
  const keys = [...new Set(all)];
  return toOneLine(`${keys.slice(0, 10).join(', ')}${keys.length > 10 ? `, … (${keys.length} keys)` : ''}`);
}
