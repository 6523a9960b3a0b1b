import { subscribe } from 'node:diagnostics_channel';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Store } from '../../support/stores.js';
import { LockLostError } from '../../../lib/index.js';
import { machineMs } from '../../support/machine-clock.js';
import { openLocks, task, sendToParent } from './worker-support.js';

/**
 * Takes one key again and again until it is killed or told to end, and tells when it asked, since when it surely stood in
 * line, and when it had it.
 */
const { store, namespace, key, leaseMs } = task() as {
  store: Store;
  namespace: string;
  key: string;
  leaseMs: number;
};
const { app, locks } = await openLocks(store, namespace);
const over = new AbortController();
let queuedAtMs: number | undefined;
subscribe('nestjs-distributed-lock:contended', () => (queuedAtMs = machineMs()));
process.once('message', () => over.abort());
while (!over.signal.aborted) {
  const askedAtMs = machineMs();
  queuedAtMs = undefined;
  await locks
    .withLock(key, { leaseMs, waitMs: 60_000 }, async (lock) => {
      const fromMs = machineMs();
      const fencingToken = String(lock.fencingToken);
      const record = { askedAtMs, queuedAtMs, fromMs, fencingToken };
      sendToParent(record);
      await sleep(Math.random() * 20);
      const toMs = machineMs();
      // A machine that stood still has lost it, nobody knows when.
      sendToParent({ ...record, toMs: lock.isValid() ? toMs : fromMs });
    })
    .catch((error: unknown) => {
      if (!(error instanceof LockLostError)) throw error;
    });
  await sleep(Math.random() * 20);
}
await app.close();
process.disconnect();
