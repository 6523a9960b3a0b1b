import { setTimeout as sleep } from 'node:timers/promises';
import type { Store } from '../../support/stores.js';
import { machineMs } from '../../support/machine-clock.js';
import { openLocks, task, sendToParent } from './worker-support.js';

/** Takes one key again and again, and tells from when to when it was surely held. */
const { store, namespace, key, turns } = task() as {
  store: Store;
  namespace: string;
  key: string;
  turns: number;
};
const { app, locks } = await openLocks(store, namespace);
const turn = async () => {
  for (let left = turns; left > 0; left -= 1) {
    await locks.withLock(key, { waitMs: 60_000 }, async (lock) => {
      const fromMs = machineMs();
      await sleep(Math.random() * 3);
      if (lock.isValid())
        sendToParent({ fromMs, toMs: machineMs(), fencingToken: String(lock.fencingToken) });
    });
  }
};
await Promise.all([turn(), turn()]);
await app.close();
process.disconnect();
