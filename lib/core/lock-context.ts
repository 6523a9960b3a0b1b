import { AsyncLocalStorage } from 'node:async_hooks';
import { BorrowedLock } from './leases/lock-views.js';
import type { Lease } from './leases/lease.js';
import type { Lock } from './lock.js';
import { shareAcrossCopies } from './package-copies.js';

/** Work that runs under a lock, with the context from which it was started. */
interface LockContext {
  /** `undefined` once the work has ended. Calls that it left running keep this context, but no longer have the lock. */
  current: ContextLock | undefined;
  outer: LockContext | undefined;
}

interface ContextLock {
  readonly lease: Lease;
  /** The lock as the work receives it. */
  readonly lock: Lock;
  /** The lock module that acquired it: the same key of two modules is two locks. */
  readonly locks: object;
  readonly storeKey: string;
}

const contextStorage = shareAcrossCopies('chain', () => new AsyncLocalStorage<LockContext>());

/**
 * Returns the innermost lock under which this asynchronous context runs: inside `withLock`, `@Locked`,
 * `@SingletonCron`, `@OnElected` and `@LeaderOnly`. Otherwise it returns `undefined`, also in calls that are still
 * running after such work has ended.
 *
 * Inside `@SingletonCron`, `@OnElected` and `@LeaderOnly`, the library releases the lock when the run or the term ends.
 * Your own `release()` rejects with `LockConfigError`, and `await using` releases nothing.
 */
export function currentLock(): Lock | undefined {
  return findContextLock(() => true)?.lock;
}

/** Returns the lock of `locks` on this key under which this asynchronous context runs. */
export function findLeaseInContext(locks: object, storeKey: string): Lease | undefined {
  return findContextLock((contextLock) => contextLock.locks === locks && contextLock.storeKey === storeKey)
    ?.lease;
}

/** Whether this asynchronous context runs under a lock of `locks` on a matching key. */
export const holdsLockInContext = (locks: object, matches: (storeKey: string) => boolean): boolean =>
  findContextLock((contextLock) => contextLock.locks === locks && matches(contextLock.storeKey)) !==
  undefined;

/** Returns all locks of `locks` under which this asynchronous context runs. */
export function findLeasesInContext(locks: object): readonly Lease[] {
  const found: Lease[] = [];
  findContextLock((contextLock) => {
    if (contextLock.locks === locks) found.push(contextLock.lease);
    return false;
  });
  return found;
}

/** Whether this asynchronous context began under any lock, which may have been released since. */
export const isInLockContext = (): boolean => contextStorage.getStore() !== undefined;

/** Runs the work in a context with this lock. */
export async function runInLockContext<T>(
  { lease, locks, storeKey }: Omit<ContextLock, 'lock'>,
  work: () => T | Promise<T>,
): Promise<T> {
  const lock = lease.purpose === 'lock' ? lease : new BorrowedLock(lease);
  const context: LockContext = {
    current: { lease, lock, locks, storeKey },
    outer: findActive(contextStorage.getStore()),
  };
  try {
    return await contextStorage.run(context, work);
  } finally {
    context.current = undefined;
  }
}

function findContextLock(matches: (contextLock: ContextLock) => boolean): ContextLock | undefined {
  for (let context = findActive(contextStorage.getStore()); context; context = context.outer) {
    if (context.current && matches(context.current)) return context.current;
  }
  return undefined;
}

/** Returns the first context whose work still runs. Unlinks ended contexts behind it: the chain would grow forever. */
function findActive(start: LockContext | undefined): LockContext | undefined {
  const first = skipEnded(start);
  for (let context = first; context; context = context.outer) context.outer = skipEnded(context.outer);
  return first;
}

function skipEnded(start: LockContext | undefined): LockContext | undefined {
  let context = start;
  while (context && !context.current) context = context.outer;
  return context;
}
