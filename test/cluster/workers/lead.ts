import { subscribe } from 'node:diagnostics_channel';
import { setTimeout as sleep } from 'node:timers/promises';
import { LeaderElection, type LockEventMessage } from '../../../lib/index.js';
import { machineMs } from '../../machine-ms.js';
import type { Store } from '../../stores.js';
import { locksOn, task, tell } from './locks-of.js';

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
/** So that the elections are not all led by the process that came first. */
const LONGEST_STAGGER_MS = 1_000;

const over = new AbortController();
process.once('message', () => over.abort());
subscribe('nestjs-distributed-lock:elected', (message) => {
  const { election, term } = message as LockEventMessage<'elected'>;
  tell({ election, term: String(term), fromMs: machineMs() });
});
const { app } = await locksOn(store, namespace);
const names = Array.from({ length: elections }, (_, index) => `election:${index}`);
const candidates = await Promise.all(
  names.map(async (name) => {
    await sleep(Math.random() * LONGEST_STAGGER_MS);
    return app.get(LeaderElection).join(name, { leaseMs });
  }),
);
const led = new Map<string, bigint>();
tell({ isReady: true });
while (!over.signal.aborted) {
  for (const [index, candidate] of candidates.entries())
    look(names[index] as string, candidate.term()?.number);
  tell({ lookedAtMs: machineMs() });
  await sleep(LOOK_EACH_MS);
}
await app.close();
process.disconnect();

function look(election: string, term: bigint | undefined): void {
  const before = led.get(election);
  if (before === term) return;
  if (before !== undefined) tell({ election, term: String(before), isOver: true });
  if (term === undefined) led.delete(election);
  else led.set(election, term);
}
