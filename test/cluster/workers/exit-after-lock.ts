import { setTimeout as sleep } from 'node:timers/promises';
import type { Store } from '../../support/stores.js';
import { openLocks, task } from './worker-support.js';

/** Runs work under several locks at once, and exits as soon as the last `withLock` has returned. */
const { store, namespace, keys, workMs } = task() as {
  store: Store;
  namespace: string;
  keys: readonly string[];
  workMs: number;
};
const { locks } = await openLocks(store, namespace, { leaseMs: 600_000 });
await Promise.all(keys.map((key) => locks.withLock(key, () => sleep(workMs))));
process.exit(0);
