import type { Store } from '../../support/stores.js';
import { openLocks, task, sendToParent } from './worker-support.js';

/** Locks many different keys once, in rounds, and sends after each what is left in the process. */
const { store, namespace, rounds, keys } = task() as {
  store: Store;
  namespace: string;
  rounds: number;
  keys: number;
};
const { app, locks } = await openLocks(store, namespace);
const AT_ONCE = 100;
for (let round = 0; round < rounds; round += 1) {
  for (let from = 0; from < keys; from += AT_ONCE) {
    const some = Array.from({ length: AT_ONCE }, (_, index) => `${round}:${from + index}`);
    await Promise.all(some.map((key) => locks.withLock(key, () => key)));
  }
  // What finalizers let go of is collected the second time.
  globalThis.gc?.();
  await new Promise((resolve) => setImmediate(resolve));
  globalThis.gc?.();
  const timers = process.getActiveResourcesInfo().filter((resource) => resource === 'Timeout').length;
  sendToParent({ heapBytes: process.memoryUsage().heapUsed, timers });
}
await app.close();
process.disconnect();
