import { type Contention, contend } from '../../support/kinds/contention.js';
import type { Store } from '../../support/stores.js';
import { openLocks, sendToParent, task } from './worker-support.js';

/** Acquires locks of several kinds again and again, as often as it is told or until a message comes. */
const { store, namespace, leaseMs, ...contention } = task() as Contention & {
  store: Store;
  namespace: string;
  leaseMs: number;
};
const { app, locks } = await openLocks(store, namespace, { leaseMs });
const over = new AbortController();
process.once('message', () => over.abort());
await contend(contention, {
  locks,
  send: (message) => sendToParent({ ...message }),
  signal: over.signal,
});
await app.close();
process.disconnect();
