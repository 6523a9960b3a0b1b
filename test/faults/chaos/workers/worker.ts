import { timersLeft } from './timer-leaks.js'; // First, as the others set timers.
import { shiftDate } from '../../../cluster/workers/shifted-date.js'; // And read the clock.
import { getEventListeners } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { openLocks } from '../../../cluster/workers/worker-support.js';
import { OperationLog } from './operation-log.js';
import { Random } from '../../../support/random.js';
import { ResourceClient } from './resource-client.js';
import { type WorkerStatus, type WorkerCommand, type Task, leasesOf } from './worker-messages.js';
import { Recorder } from './recorder.js';
import { Workload } from './workload.js';

/** Wants locks again and again until it is killed or told to end, and writes down what it gets. */
const sendStatus = (status: WorkerStatus) => process.send?.(status);
// A listener that is left behind by each wish would be noticed so.
process.on('warning', (warning) => {
  if (warning.name === 'MaxListenersExceededWarning') throw warning;
});

// Ctrl-C, or a SIGTERM to the whole group, is meant for the one who started us, and who tells us when to end.
for (const signal of ['SIGINT', 'SIGTERM'] as const) process.on(signal, () => undefined);

const exitWithParent = () => process.exit(1);
process.on('disconnect', exitWithParent);
let work: Promise<{ end: () => Promise<void> }> | undefined;
process.on('message', (command: WorkerCommand) => {
  if (command.order === 'begin') work = begin(command.task);
  if (command.order === 'block') Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, command.forMs);
  if (command.order === 'shift-date') shiftDate(command.byMs);
  if (command.order === 'end') void work?.then(({ end }) => end());
});

async function begin(task: Task): Promise<{ end: () => Promise<void> }> {
  const { app, locks } = await openLocks(task.store, task.namespace, { leaseMs: leasesOf(task.store)[0] });
  app.useLogger(false); // That locks are lost is what we are here for.
  const resource = new ResourceClient(task.resourcePort, task.name);
  const recorder = new Recorder({ name: task.name, log: new OperationLog(task.logFile), resource });
  const neverAborted = new AbortController();
  const over = new AbortController();
  const workload = new Workload({
    task,
    locks,
    recorder,
    random: new Random(task.seed),
    sharedSignal: neverAborted.signal,
  });
  const callers = Array.from({ length: task.callers }, () => workload.runUntil(over.signal));
  sendStatus({ news: 'working' });
  return {
    async end() {
      over.abort();
      await app.close();
      await Promise.all(callers);
      resource.close();
      recorder.close();
      const listeners = getEventListeners(neverAborted.signal, 'abort').map(() => 'abort listener');
      sendStatus({ news: 'closed', left: [...(await leftoverTimers()), ...listeners] });
      process.off('disconnect', exitWithParent);
      process.disconnect();
    },
  };
}

/** Timers that stay. A closed connection may keep one for a moment. */
async function leftoverTimers(): Promise<string[]> {
  for (let attempts = 40; ; attempts -= 1) {
    const timers = timersLeft();
    if (timers.length === 0 || attempts === 0) return timers;
    await sleep(25);
  }
}
