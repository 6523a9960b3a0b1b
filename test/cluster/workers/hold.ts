import type { Store } from '../../stores.js';
import { locksOn, task, tell } from './locks-of.js';

/** Takes a lock and holds it; told to `look`, says what it sees in its first line. */
const { store, namespace, key, leaseMs } = task() as {
  store: Store;
  namespace: string;
  key: string;
  leaseMs: number;
};
const { locks } = await locksOn(store, namespace);
const lock = await locks.acquire(key, { leaseMs, waitMs: 60_000 });
const { signal } = lock;
process.on('message', () => {
  const isValid = lock.isValid();
  setImmediate(() =>
    tell({ isValid, isAborted: signal.aborted, reason: (signal.reason as Error | undefined)?.name }),
  );
});
tell({ fencingToken: String(lock.fencingToken) });
