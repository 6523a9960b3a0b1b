import { AsyncLocalStorage } from 'node:async_hooks';
import type { Lease } from './lease.js';
import type { Lock } from './lock.js';

/** One piece of work that runs under a lock, and the work it was started from. */
interface Link {
  readonly lock: Lease;
  /** By whom it was taken: keys of two modules are two things. */
  readonly locks: object;
  readonly storeKey: string;
  readonly outer: Link | undefined;
  isOpen: boolean;
}

const chain = new AsyncLocalStorage<Link>();

/**
 * The innermost lock under which this asynchronous chain runs: inside `withLock`, `@Locked`, `@SingletonCron`,
 * `@OnElected` and `@LeaderOnly`.
 * `undefined` outside, and in what such work left running behind its back once it has ended.
 */
export function currentLock(): Lock | undefined {
  return openLink(() => true)?.lock;
}

/** The lock that `locks` took on this key and under which this asynchronous chain runs. */
export function heldInChain(locks: object, storeKey: string): Lease | undefined {
  return openLink((link) => link.locks === locks && link.storeKey === storeKey)?.lock;
}

/** Whether `locks` took a lock on one of these keys under which this asynchronous chain runs. */
export const holdsInChain = (locks: object, isIt: (storeKey: string) => boolean): boolean =>
  openLink((link) => link.locks === locks && isIt(link.storeKey)) !== undefined;

/** Runs the work as a link of the chain. */
export async function runUnder<T>(
  { lock, locks, storeKey }: Pick<Link, 'lock' | 'locks' | 'storeKey'>,
  work: () => T | Promise<T>,
): Promise<T> {
  const link: Link = { lock, locks, storeKey, outer: chain.getStore(), isOpen: true };
  try {
    return await chain.run(link, work);
  } finally {
    link.isOpen = false;
  }
}

function openLink(fits: (link: Link) => boolean): Link | undefined {
  for (let link = chain.getStore(); link; link = link.outer) {
    if (link.isOpen && fits(link)) return link;
  }
  return undefined;
}
