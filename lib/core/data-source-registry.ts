import type { Locks } from './locks.js';
import { shareAcrossCopies } from './package-copies.js';

interface LocksRegistration {
  readonly locks: Locks;
  /** Registered by the lock module without a name. */
  readonly isUnnamed: boolean;
}

/** By data source, so that two applications in one process stay separate. */
const registrations = shareAcrossCopies(
  'locks of data sources',
  () => new WeakMap<object, Set<LocksRegistration>>(),
);

/** Registers the locks of a lock module on this data source. Returns a function that removes them. */
export function registerLocks(source: object, entry: LocksRegistration): () => void {
  const entries = registrations.get(source) ?? new Set();
  registrations.set(source, entries.add(entry));
  return () => entries.delete(entry);
}

/** The number of lock modules on this data source. */
export const countLocksOf = (source: object): number => registrations.get(source)?.size ?? 0;

/**
 * Returns the locks of the unnamed lock module on this data source, else of its only one. `undefined` if the choice is
 * not unique.
 */
export function findLocksOf(source: object): Locks | undefined {
  const entries = [...(registrations.get(source) ?? [])];
  const unnamed = entries.filter(({ isUnnamed }) => isUnnamed);
  const [one, another] = unnamed.length > 0 ? unnamed : entries;
  return another ? undefined : one?.locks;
}
