import type { Store } from '../../support/stores.js';
import { openLocks, sendToParent, task } from './worker-support.js';

/**
 * Acquires one key to read it, another to write it, and all permits of a third one. Tells what else it can acquire of the first,
 * and holds everything.
 */
const { store, namespace, toRead, toWrite, permits, leaseMs } = task() as {
  store: Store;
  namespace: string;
  toRead: string;
  toWrite: string;
  permits: number;
  leaseMs: number;
};
const { locks } = await openLocks(store, namespace, { leaseMs });
await locks.acquire(toRead, { mode: 'read', waitMs: 60_000 });
const second = await locks.tryAcquire(toRead, { mode: 'write' });
await locks.acquire(toWrite, { mode: 'write', waitMs: 60_000 });
for (let held = 0; held < permits; held += 1) await locks.acquire('pdf', { permits, waitMs: 60_000 });
sendToParent({ hasBoth: second !== null, permits });
process.on('message', () => undefined);
