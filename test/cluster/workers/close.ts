import { Gate } from '../../support/gate.js';
import type { Store } from '../../support/stores.js';
import { openLocks, task, sendToParent } from './worker-support.js';

/** Closes the application with a holder and a waiter in it, and ends when nothing is left to do. */
const { store, namespace } = task() as { store: Store; namespace: string };
const { app, locks } = await openLocks(store, namespace);
const [held, finished] = [new Gate(), new Gate()];
const holder = locks.withLock('key', async () => {
  held.open();
  await finished.passed;
  return 'finished';
});
await held.passed;
const waiter = locks.acquire('key').catch((error: unknown) => (error as Error).name);
const closed = app.close();
sendToParent({ waiter: await waiter });
finished.open();
sendToParent({ holder: await holder });
await closed;
process.disconnect();
