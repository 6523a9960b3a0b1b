import { AsyncLocalStorage } from 'node:async_hooks';
import { BorrowedLock } from './leases/borrowed-lock.js';
import type { Lease } from './leases/lease.js';
import type { Lock } from './lock.js';
import { shareAcrossCopies } from './package-copies.js';

/** One piece of work that runs under a lock, and the work it was started from. */
interface LockContext {
  /** None once the work has ended: what it left running keeps the link, but must not keep the lock. */
  current: ContextLock | undefined;
  outer: LockContext | undefined;
}

interface ContextLock {
  readonly lease: Lease;
  /** What the work sees of it. */
  readonly lock: Lock;
  /** By whom it was taken: keys of two modules are two things. */
  readonly locks: object;
  readonly storeKey: string;
}

const contextStorage = shareAcrossCopies('chain', () => new AsyncLocalStorage<LockContext>());

/**
 * The innermost lock under which this asynchronous chain runs: inside `withLock`, `@Locked`, `@SingletonCron`,
 * `@OnElected` and `@LeaderOnly`.
 * `undefined` outside, and in what such work left running behind its back once it has ended.
 *
 * Inside `@SingletonCron`, `@OnElected` and `@LeaderOnly` the lock belongs to the run or the term: its `release()` rejects
 * with `LockConfigError`, and `await using` releases nothing.
 */
export function currentLock(): Lock | undefined {
  return findContextLock(() => true)?.lock;
}

/** The lock that `locks` took on this key and under which this asynchronous chain runs. */
export function findLeaseInContext(locks: object, storeKey: string): Lease | undefined {
  return findContextLock((contextLock) => contextLock.locks === locks && contextLock.storeKey === storeKey)
    ?.lease;
}

/** Whether `locks` took a lock on one of these keys under which this asynchronous chain runs. */
export const holdsLockInContext = (locks: object, matches: (storeKey: string) => boolean): boolean =>
  findContextLock((contextLock) => contextLock.locks === locks && matches(contextLock.storeKey)) !==
  undefined;

/** The locks of `locks` under which this asynchronous chain runs. */
export function findLeasesInContext(locks: object): readonly Lease[] {
  const found: Lease[] = [];
  findContextLock((contextLock) => {
    if (contextLock.locks === locks) found.push(contextLock.lease);
    return false;
  });
  return found;
}

/** Runs the work as a link of the chain. */
export async function runWithLock<T>(
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

/** The first open link from here on. Those behind it that are closed leave the chain, which would grow for ever otherwise. */
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
