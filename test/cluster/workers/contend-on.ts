import { subscribe } from 'node:diagnostics_channel';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Store } from '../../stores.js';
import { machineMs } from '../../machine-ms.js';
import { locksOn, task, tell } from './locks-of.js';

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
const { app, locks } = await locksOn(store, namespace);
const over = new AbortController();
let inLineAtMs: number | undefined;
subscribe('nestjs-distributed-lock:contended', () => (inLineAtMs = machineMs()));
process.once('message', () => over.abort());
while (!over.signal.aborted) {
  const askedAtMs = machineMs();
  inLineAtMs = undefined;
  await locks.withLock(key, { leaseMs, waitMs: 60_000 }, async (lock) => {
    const fromMs = machineMs();
    const fencingToken = String(lock.fencingToken);
    const told = { askedAtMs, inLineAtMs, fromMs, fencingToken };
    tell(told);
    await sleep(Math.random() * 20);
    const toMs = machineMs();
    if (lock.isValid()) tell({ ...told, toMs });
  });
  await sleep(Math.random() * 20);
}
await app.close();
process.disconnect();
