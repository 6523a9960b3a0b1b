import { once } from 'node:events';
import { LockLostError } from '../../../lib/index.js';
import { type Step, fencedCounters } from '../../support/fencing/fenced-counter.js';
import type { Store } from '../../support/stores.js';
import { openLocks, task, sendToParent } from './worker-support.js';

/** Increments each counter under its lock, and stays at the given step until it is told to go on. */
const { store, namespace, name, keys, leaseMs, stayAt } = task() as {
  store: Store;
  namespace: string;
  name: string;
  keys: readonly string[];
  leaseMs: number;
  stayAt: Step;
};
const { app, locks } = await openLocks(store, namespace);
const counters = await fencedCounters(store, name);

async function increment(key: string): Promise<void> {
  let isWritten = false;
  const onStep = async (step: Step) => {
    isWritten = step === 'written';
    if (step !== stayAt) return;
    const resumed = once(process, 'message');
    sendToParent({ key, at: step });
    await resumed;
  };
  let reason: string | undefined;
  try {
    await counters.increment(locks, key, { leaseMs, onStep });
  } catch (error) {
    if (!(error instanceof LockLostError)) throw error;
    reason = error.name;
  }
  sendToParent({ key, isWritten, reason });
}

await Promise.all(keys.map(increment));
await counters[Symbol.asyncDispose]();
await app.close();
process.disconnect();
