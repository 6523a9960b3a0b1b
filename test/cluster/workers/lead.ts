import { subscribe } from 'node:diagnostics_channel';
import { setTimeout as sleep } from 'node:timers/promises';
import { LeaderElection, type LockEventMessage } from '../../../lib/index.js';
import { machineMs } from '../../support/machine-clock.js';
import type { Store } from '../../support/stores.js';
import { openLocks, task, sendToParent } from './worker-support.js';

/**
 * Stands in many elections until it is killed or told to end. Tells from when on it leads which of them, from when on it
 * does not, and again and again that it looked: all it led until then was led at that moment.
 */
const { store, namespace, elections, leaseMs } = task() as {
  store: Store;
  namespace: string;
  elections: number;
  leaseMs: number;
};
const LOOK_EACH_MS = 10;

const led = new Map<string, bigint>();
const over = new AbortController();
process.once('message', () => over.abort());
subscribe('nestjs-distributed-lock:elected', (message) => {
  const { election, term } = message as LockEventMessage<'elected'>;
  endOther(election, term);
  led.set(election, term);
  sendToParent({ election, term: String(term), fromMs: machineMs() });
});
const { app } = await openLocks(store, namespace);
const names = Array.from({ length: elections }, (_, index) => `election:${index}`);
const candidates = await Promise.all(
  names.map(async (name) => {
    // So that the elections are not all led by the process that came first.
    await sleep(Math.random() * leaseMs);
    return { name, candidate: app.get(LeaderElection).join(name, { leaseMs }) };
  }),
);
sendToParent({ isReady: true });
while (!over.signal.aborted) {
  for (const { name, candidate } of candidates) endOther(name, candidate.term()?.number);
  sendToParent({ lookedAtMs: machineMs() });
  await sleep(LOOK_EACH_MS);
}
await app.close();
process.disconnect();

/** What was led before is over, unless it is this term. */
function endOther(election: string, term: bigint | undefined): void {
  const before = led.get(election);
  if (before === undefined || before === term) return;
  led.delete(election);
  sendToParent({ election, term: String(before), isOver: true });
}
