import { type FencedTarget, writeTo } from '../../support/fencing/fenced-target.js';
import type { Store } from '../../support/stores.js';
import { openLocks, task, sendToParent } from './worker-support.js';

/** Takes a lock and holds it; told to `write`, says what it sees in its first line, and whether its write is accepted. */
const { store, namespace, key, leaseMs, place } = task() as {
  store: Store;
  namespace: string;
  key: string;
  leaseMs: number;
  place: FencedTarget;
};
const { locks } = await openLocks(store, namespace);
const lock = await locks.acquire(key, { leaseMs, waitMs: 60_000 });
const { signal } = lock;
process.on('message', () => {
  const isValid = lock.isValid();
  setImmediate(() => {
    const observed = {
      isValid,
      isAborted: signal.aborted,
      reason: (signal.reason as Error | undefined)?.name,
    };
    void writeTo(place, lock.fencingToken).then((isWritten) => sendToParent({ ...observed, isWritten }));
  });
});
sendToParent({ fencingToken: String(lock.fencingToken) });
