import { AsyncLocalStorage } from 'node:async_hooks';
import { reentryError } from './error-factories.js';
import { BorrowedLock, ReentrantLock } from './leases/lock-views.js';
import type { InternalLock } from './leases/internal-lock.js';
import type { Lock } from './lock.js';
import { shareAcrossCopies } from './package-copies.js';

/** Work that runs under a lock, with the context from which it was started. */
interface LockContext {
  /** `undefined` once the work has ended. Calls that it left running keep this context, but no longer have the lock. */
  current: ContextLock | undefined;
  outer: LockContext | undefined;
}

interface ContextLock {
  readonly lock: InternalLock;
  /** The lock as the work receives it. */
  readonly view: Lock;
  /** The lock module that acquired it: the same key of two modules is two locks. */
  readonly locks: object;
}

/** Without a view, the work receives the lock itself, or a view that it cannot release. */
type NewContextLock = Pick<ContextLock, 'lock' | 'locks'> & Partial<Pick<ContextLock, 'view'>>;

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
  return findContextLock(() => true)?.view;
}

/** Returns the lock of `locks` on this key under which this asynchronous context runs. */
export function findLockInContext(locks: object, storeKey: string): InternalLock | undefined {
  return findContextLock((contextLock) => contextLock.locks === locks && isOn(contextLock, storeKey))?.lock;
}

/**
 * Returns a view of the lock of `locks` on this key, if this asynchronous context holds one.
 *
 * @throws LockReentryError if it does and the call may not re-enter; LockLostError if that lock is lost
 */
export function findOuterLock(
  locks: object,
  key: string,
  storeKey: string,
  isReentrant = false,
): ReentrantLock | undefined {
  const outer = findLockInContext(locks, storeKey);
  if (outer?.isLost) outer.throwIfLost();
  if (!outer?.isHeld) return undefined;
  if (!isReentrant) throw reentryError(key);
  return new ReentrantLock(outer, key);
}

/** Whether this asynchronous context runs under a lock of `locks` on a matching key. */
export const holdsLockInContext = (locks: object, matches: (storeKey: string) => boolean): boolean =>
  findContextLock(
    ({ locks: others, lock: { storeKeys } }) =>
      others === locks && (typeof storeKeys === 'string' ? matches(storeKeys) : storeKeys.some(matches)),
  ) !== undefined;

/** Returns all locks of `locks` under which this asynchronous context runs. */
export function findLocksInContext(locks: object): readonly InternalLock[] {
  const found: InternalLock[] = [];
  findContextLock((contextLock) => {
    // A lock that was entered again has several contexts.
    if (contextLock.locks === locks && !found.includes(contextLock.lock)) found.push(contextLock.lock);
    return false;
  });
  return found;
}

/** Whether this asynchronous context began under any lock, which may have been released since. */
export const isInLockContext = (): boolean => contextStorage.getStore() !== undefined;

/** Runs the work in a context with this lock. */
export async function runInLockContext<T>(
  { lock, view = viewOf(lock), locks }: NewContextLock,
  work: () => T | Promise<T>,
): Promise<T> {
  const context: LockContext = {
    current: { lock, view, locks },
    outer: findActive(contextStorage.getStore()),
  };
  try {
    // Awaited in the context: a query of Prisma or Knex is sent only when `then` is called.
    return await contextStorage.run(context, async () => await work());
  } finally {
    context.current = undefined;
  }
}

/** The lock of a run or a term is not released by the work. */
const viewOf = (lock: InternalLock): Lock => (lock.purpose === 'lock' ? lock : new BorrowedLock(lock));

const isOn = ({ lock: { storeKeys } }: ContextLock, storeKey: string) =>
  typeof storeKeys === 'string' ? storeKeys === storeKey : storeKeys.includes(storeKey);

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
