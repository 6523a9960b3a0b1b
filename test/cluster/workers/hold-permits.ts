import type { Store } from '../../support/stores.js';
import { openLocks, sendToParent, task } from './worker-support.js';

/** Acquires all permits and holds them. */
const { store, namespace, permits, leaseMs } = task() as {
  store: Store;
  namespace: string;
  permits: number;
  leaseMs: number;
};
const { locks } = await openLocks(store, namespace, { leaseMs });
for (let held = 0; held < permits; held += 1) await locks.acquire('pdf', { permits });
sendToParent({ held: permits });
process.on('message', () => undefined);
