import { once } from 'node:events';
import { LockLostError } from '../../../lib/index.js';
import { type Step, fencedCounters } from '../../fenced-counter.js';
import type { Store } from '../../stores.js';
import { locksOn, task, tell } from './locks-of.js';

/** Increments one counter under its lock, and stays at the given steps until it is told to go on. */
const { store, namespace, name, key, leaseMs, stayAt } = task() as {
  store: Store;
  namespace: string;
  name: string;
  key: string;
  leaseMs: number;
  stayAt: readonly Step[];
};
const { app, locks } = await locksOn(store, namespace);
const counters = await fencedCounters(store, name);
let isWritten = false;
const onStep = async (step: Step) => {
  isWritten = step === 'written';
  if (!stayAt.includes(step)) return;
  const told = once(process, 'message');
  tell({ at: step });
  await told;
};
let reason: string | undefined;
try {
  await counters.increment(locks, key, { leaseMs, onStep });
} catch (error) {
  if (!(error instanceof LockLostError)) throw error;
  reason = error.name;
}
tell({ isWritten, reason });
await counters[Symbol.asyncDispose]();
await app.close();
process.disconnect();
