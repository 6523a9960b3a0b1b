import { setTimeout as sleep } from 'node:timers/promises';
import { LockLostError } from '../../../lib/index.js';
import { machineMs } from '../../support/machine-clock.js';
import type { Store } from '../../support/stores.js';
import { openLocks, sendToParent, task } from './worker-support.js';

/** Acquires a permit again and again, and tells from when to when it was surely held. */
const { store, namespace, permits, turns, leaseMs } = task() as {
  store: Store;
  namespace: string;
  permits: number;
  turns: number;
  leaseMs: number;
};
const { app, locks } = await openLocks(store, namespace, { leaseMs });
const turn = async () => {
  for (let left = turns; left > 0; left -= 1) {
    const work = locks.withLock('pdf', { permits, waitMs: 60_000 }, async (lock) => {
      const fromMs = machineMs();
      await sleep(Math.random() * 3);
      if (lock.isValid()) sendToParent({ permit: lock.permit, fromMs, toMs: machineMs() });
    });
    // A process that was stopped has lost its permit.
    await work.catch((error: unknown) => {
      if (!(error instanceof LockLostError)) throw error;
    });
  }
};
await Promise.all([turn(), turn(), turn()]);
await app.close();
process.disconnect();
