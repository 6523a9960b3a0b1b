import type { Store } from '../../support/stores.js';
import { openLocks, sendToParent, task } from './worker-support.js';

/** Acquires one key to read it and another to write it, tells what else it can acquire of the first, and holds both. */
const { store, namespace, toRead, toWrite, leaseMs } = task() as {
  store: Store;
  namespace: string;
  toRead: string;
  toWrite: string;
  leaseMs: number;
};
const { locks } = await openLocks(store, namespace, { leaseMs });
await locks.acquire(toRead, { mode: 'read', waitMs: 60_000 });
const second = await locks.tryAcquire(toRead, { mode: 'write' });
await locks.acquire(toWrite, { mode: 'write', waitMs: 60_000 });
sendToParent({ hasBoth: second !== null });
process.on('message', () => undefined);
