import { setTimeout as sleep } from 'node:timers/promises';
import { LockLostError } from '../../../lib/index.js';
import { machineMs } from '../../support/machine-clock.js';
import type { Store } from '../../support/stores.js';
import { openLocks, sendToParent, task } from './worker-support.js';

/** Acquires a key to read and to write it again and again, and tells from when to when it was surely held. */
const { store, namespace, turns, leaseMs } = task() as {
  store: Store;
  namespace: string;
  turns: number;
  leaseMs: number;
};
const { app, locks } = await openLocks(store, namespace, { leaseMs });
const contend = async (mode: 'read' | 'write') => {
  for (let left = turns; left > 0; left -= 1) {
    const work = locks.withLock('catalog', { mode, waitMs: 120_000 }, async (lock) => {
      const fromMs = machineMs();
      await sleep(Math.random() * 3);
      if (lock.isValid()) sendToParent({ mode, fromMs, toMs: machineMs() });
    });
    // A process that was stopped has lost its lock.
    await work.catch((error: unknown) => {
      if (!(error instanceof LockLostError)) throw error;
    });
  }
};
await Promise.all([contend('write'), contend('read'), contend('read')]);
await app.close();
process.disconnect();
