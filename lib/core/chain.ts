import { AsyncLocalStorage } from 'node:async_hooks';
import { shared } from './copies.js';
import type { Lease } from './lease.js';
import { LentLock } from './lent-lock.js';
import type { Lock } from './lock.js';

/** One piece of work that runs under a lock, and the work it was started from. */
interface Link {
  /** None once the work has ended: what it left running keeps the link, but must not keep the lock. */
  under: Held | undefined;
  outer: Link | undefined;
}

interface Held {
  readonly lease: Lease;
  /** What the work sees of it. */
  readonly lock: Lock;
  /** By whom it was taken: keys of two modules are two things. */
  readonly locks: object;
  readonly storeKey: string;
}

const chain = shared('chain', () => new AsyncLocalStorage<Link>());

/**
 * The innermost lock under which this asynchronous chain runs: inside `withLock`, `@Locked`, `@SingletonCron`,
 * `@OnElected` and `@LeaderOnly`.
 * `undefined` outside, and in what such work left running behind its back once it has ended.
 *
 * Inside `@SingletonCron`, `@OnElected` and `@LeaderOnly` the lock belongs to the run or the term: its `release()` rejects
 * with `LockConfigError`, and `await using` releases nothing.
 */
export function currentLock(): Lock | undefined {
  return findHeld(() => true)?.lock;
}

/** The lock that `locks` took on this key and under which this asynchronous chain runs. */
export function heldInChain(locks: object, storeKey: string): Lease | undefined {
  return findHeld((held) => held.locks === locks && held.storeKey === storeKey)?.lease;
}

/** Whether `locks` took a lock on one of these keys under which this asynchronous chain runs. */
export const holdsInChain = (locks: object, isIt: (storeKey: string) => boolean): boolean =>
  findHeld((held) => held.locks === locks && isIt(held.storeKey)) !== undefined;

/** The locks of `locks` under which this asynchronous chain runs. */
export function leasesInChain(locks: object): readonly Lease[] {
  const found: Lease[] = [];
  findHeld((held) => {
    if (held.locks === locks) found.push(held.lease);
    return false;
  });
  return found;
}

/** Runs the work as a link of the chain. */
export async function runUnder<T>(
  { lease, locks, storeKey }: Omit<Held, 'lock'>,
  work: () => T | Promise<T>,
): Promise<T> {
  const lock = lease.purpose === 'lock' ? lease : new LentLock(lease);
  const link: Link = { under: { lease, lock, locks, storeKey }, outer: openFrom(chain.getStore()) };
  try {
    return await chain.run(link, work);
  } finally {
    link.under = undefined;
  }
}

function findHeld(fits: (held: Held) => boolean): Held | undefined {
  for (let link = openFrom(chain.getStore()); link; link = link.outer) {
    if (link.under && fits(link.under)) return link.under;
  }
  return undefined;
}

/** The first open link from here on. Those behind it that are closed leave the chain, which would grow for ever otherwise. */
function openFrom(start: Link | undefined): Link | undefined {
  const first = skipClosed(start);
  for (let link = first; link; link = link.outer) link.outer = skipClosed(link.outer);
  return first;
}

function skipClosed(start: Link | undefined): Link | undefined {
  let link = start;
  while (link && !link.under) link = link.outer;
  return link;
}
