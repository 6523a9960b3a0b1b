import { setTimeout as sleep } from 'node:timers/promises';
import { LockLostError, LockTimeoutError, LockUnavailableError } from '../../../lib/index.js';
import type { Store } from '../../support/stores.js';
import { machineMs } from '../../support/machine-clock.js';
import { openLocks, task, sendToParent } from './worker-support.js';

/**
 * Takes one key again and again, whatever happens to the store, and tells from when to when it surely had it, and when it
 * heard that nobody can know.
 */
const { store, namespace, key, leaseMs, waitMs } = task() as {
  store: Store;
  namespace: string;
  key: string;
  leaseMs: number;
  waitMs: number;
};
const { app, locks } = await openLocks(store, namespace, { leaseMs });
const over = new AbortController();
process.once('message', () => over.abort());
sendToParent({ isReady: true });
while (!over.signal.aborted) {
  const askedAtMs = machineMs();
  try {
    await locks.withLock(key, { leaseMs, waitMs }, async (lock) => {
      const fromMs = machineMs();
      // Now and then so long that it takes renewals.
      const endMs = fromMs + (Math.random() < 0.001 ? leaseMs * 1.5 : Math.random() * 4);
      let toMs = fromMs;
      do {
        await sleep(Math.min(Math.max(endMs - machineMs(), 0), 50));
        const nowMs = machineMs();
        if (!lock.isValid()) break;
        toMs = nowMs;
      } while (toMs < endMs);
      sendToParent({ held: { fromMs, toMs, fencingToken: String(lock.fencingToken) } });
    });
  } catch (error) {
    const { name } = error as Error;
    const isExpected = [LockLostError, LockTimeoutError, LockUnavailableError].some(
      (kind) => error instanceof kind,
    );
    if (!isExpected) throw error;
    sendToParent({ failed: { name, askedAtMs, atMs: machineMs(), message: (error as Error).message } });
    await sleep(20);
  }
}
await app.close();
process.disconnect();
