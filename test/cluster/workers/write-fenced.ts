import { setTimeout as sleep } from 'node:timers/promises';
import { LockLostError } from '../../../lib/index.js';
import type { Store } from '../../support/stores.js';
import { machineMs } from '../../support/machine-clock.js';
import type { LoadCommand } from '../../faults/scenarios/fenced-load.js';
import { openLocks, task, sendToParent } from './worker-support.js';

/**
 * Takes keys in turn and writes under each lock, as long as it thinks that it holds it, to what the parent keeps. Told to
 * hold on, it keeps the locks that it has until it hears otherwise or loses them, but for the brief ones. Of these it waits
 * for none for long: one may be blocked for a lease, if its release was lost.
 */
const { store, namespace, keys, brief, loops, leaseMs } = task() as {
  store: Store;
  namespace: string;
  keys: readonly string[];
  brief: readonly string[];
  loops: number;
  leaseMs: number;
};
const { app, locks } = await openLocks(store, namespace);
const over = new AbortController();
const pendingWrites = new Map<number, () => void>();
let writes = 0;
let isHoldingOn = false;
process.on('message', (command: LoadCommand) => {
  if ('answered' in command) pendingWrites.get(command.answered)?.();
  else if ('holdOn' in command) isHoldingOn = command.holdOn;
  else over.abort();
});

/** Settles when the write has been accepted or refused. */
const write = (record: Record<string, unknown>) =>
  new Promise<void>((resolve) => {
    const number = (writes += 1);
    pendingWrites.set(number, () => {
      pendingWrites.delete(number);
      resolve();
    });
    sendToParent({ ...record, write: number });
  });

const turn = async (key: string) => {
  const isBrief = brief.includes(key);
  const waitMs = isBrief ? 500 : 60_000;
  const lock = await locks.acquire(key, { leaseMs, waitMs, signal: over.signal });
  const record = { key, fencingToken: String(lock.fencingToken), fromMs: machineMs() };
  let toMs = record.fromMs;
  const leaveAtMs = toMs + Math.random() * 30;
  while (lock.isValid()) {
    toMs = machineMs();
    if (toMs > leaveAtMs && (isBrief || !isHoldingOn)) break;
    await write(record);
    await sleep(5);
  }
  const wasNotified = lock.signal.aborted && lock.signal.reason instanceof LockLostError;
  await lock.release().catch(() => false);
  sendToParent({ ...record, toMs, wasNotified });
};

const loop = async (among: readonly string[], offset: number) => {
  for (let next = offset; !over.signal.aborted; next += 1) {
    // While nobody can be granted anything, one who has not stood in line yet is refused at once.
    await turn(among[next % among.length]!).catch(() => sleep(50));
  }
};
const offset = process.pid; // Not all of them at the same key.
await Promise.all([
  loop(brief, offset),
  ...Array.from({ length: loops }, (_, index) => loop(keys, offset + index)),
]);
await app.close();
process.disconnect();
