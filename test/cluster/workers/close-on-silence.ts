import type { Store } from '../../support/stores.js';
import { openLocks, task, sendToParent } from './worker-support.js';

/** Told so, asks for a lock that the store will not answer for, and closes at once. */
const { store, namespace } = task() as { store: Store; namespace: string };
const { app, locks } = await openLocks(store, namespace);
await locks.withLock('warm', () => undefined);
process.once('message', () => {
  locks.acquire('key').catch(() => undefined);
  void app.close().then(() => process.disconnect());
});
sendToParent({ isReady: true });
