import type { Locks } from './locks.js';
import { shareAcrossCopies } from './package-copies.js';

interface LocksRegistration {
  readonly locks: Locks;
  /** Of the module without a name. */
  readonly isUnnamed: boolean;
}

/** By the data source of an application, so that two applications in one process do not meet. */
const registrations = shareAcrossCopies(
  'locks of data sources',
  () => new WeakMap<object, Set<LocksRegistration>>(),
);

/** Makes the locks known as those that guard the data of this source. Returns how to end that. */
export function registerLocks(source: object, entry: LocksRegistration): () => void {
  const entries = registrations.get(source) ?? new Set();
  registrations.set(source, entries.add(entry));
  return () => entries.delete(entry);
}

/** How many lock modules know this source. */
export const countLocksOf = (source: object): number => registrations.get(source)?.size ?? 0;

/** The locks of the unnamed module, or of the only one, that knows this source; `undefined` if there is none or several. */
export function findLocksOf(source: object): Locks | undefined {
  const entries = [...(registrations.get(source) ?? [])];
  const unnamed = entries.filter(({ isUnnamed }) => isUnnamed);
  const [one, another] = unnamed.length > 0 ? unnamed : entries;
  return another ? undefined : one?.locks;
}
