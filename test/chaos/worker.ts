import { timersLeft } from './timers.js'; // First, as the others set timers.
import { shiftDate } from '../cluster/workers/shifted-date.js'; // And read the clock.
import { getEventListeners } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { locksOn } from '../cluster/workers/locks-of.js';
import { Diary } from './diary.js';
import { Random } from '../random.js';
import { ResourceClient } from './resource-client.js';
import { LEASES_MS, type News, type Order, type Task } from './task.js';
import { Witness } from './witness.js';
import { Workload } from './workload.js';

/** Wants locks again and again until it is killed or told to end, and writes down what it gets. */
const tell = (news: News) => process.send?.(news);
// A listener that is left behind by each wish would be noticed so.
process.on('warning', (warning) => {
  if (warning.name === 'MaxListenersExceededWarning') throw warning;
});

// Ctrl-C is meant for the one who started us, and who tells us when to end.
process.on('SIGINT', () => undefined);

const orphaned = () => process.exit(1);
process.on('disconnect', orphaned);
let work: Promise<{ end: () => Promise<void> }> | undefined;
process.on('message', (order: Order) => {
  if (order.order === 'begin') work = begin(order.task);
  if (order.order === 'block') Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, order.forMs);
  if (order.order === 'shift-date') shiftDate(order.byMs);
  if (order.order === 'end') void work?.then(({ end }) => end());
});

async function begin(task: Task): Promise<{ end: () => Promise<void> }> {
  const { app, locks } = await locksOn(task.store, task.namespace, { leaseMs: LEASES_MS[0] });
  app.useLogger(false); // That locks are lost is what we are here for.
  const resource = new ResourceClient(task.resourcePort, task.name);
  const witness = new Witness({ name: task.name, diary: new Diary(task.diary), resource });
  const patience = new AbortController();
  const over = new AbortController();
  const workload = new Workload({
    task,
    locks,
    witness,
    random: new Random(task.seed),
    patience: patience.signal,
  });
  const callers = Array.from({ length: task.callers }, () => workload.callUntil(over.signal));
  tell({ news: 'working' });
  return {
    async end() {
      over.abort();
      await app.close();
      await Promise.all(callers);
      resource.close();
      witness.close();
      const listeners = getEventListeners(patience.signal, 'abort').map(() => 'abort listener');
      tell({ news: 'closed', left: [...(await left()), ...listeners] });
      process.off('disconnect', orphaned);
      process.disconnect();
    },
  };
}

/** Timers that stay. A closed connection may keep one for a moment. */
async function left(): Promise<string[]> {
  for (let looks = 40; ; looks -= 1) {
    const timers = timersLeft();
    if (timers.length === 0 || looks === 0) return timers;
    await sleep(25);
  }
}
