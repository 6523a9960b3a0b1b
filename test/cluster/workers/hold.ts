import { type FencedPlace, writeTo } from '../../fenced-place.js';
import type { Store } from '../../stores.js';
import { locksOn, task, tell } from './locks-of.js';

/** Takes a lock and holds it; told to `write`, says what it sees in its first line, and whether its write is accepted. */
const { store, namespace, key, leaseMs, place } = task() as {
  store: Store;
  namespace: string;
  key: string;
  leaseMs: number;
  place: FencedPlace;
};
const { locks } = await locksOn(store, namespace);
const lock = await locks.acquire(key, { leaseMs, waitMs: 60_000 });
const { signal } = lock;
process.on('message', () => {
  const isValid = lock.isValid();
  setImmediate(() => {
    const seen = { isValid, isAborted: signal.aborted, reason: (signal.reason as Error | undefined)?.name };
    void writeTo(place, lock.fencingToken).then((isWritten) => tell({ ...seen, isWritten }));
  });
});
tell({ fencingToken: String(lock.fencingToken) });
