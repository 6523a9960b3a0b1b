import { transferAll } from '../../support/kinds/transfers.js';
import type { Store } from '../../support/stores.js';
import { openLocks, task } from './worker-support.js';

/** Transfers between random accounts. */
const { store, namespace, ...plan } = task() as {
  store: Store;
  namespace: string;
  folder: string;
  transfers: number;
};
const { app, locks } = await openLocks(store, namespace);
await transferAll(plan, locks);
await app.close();
process.disconnect();
