import { once } from 'node:events';
import { Worker } from 'node:worker_threads';
import { expect, it } from 'vitest';
import { systemClock } from '../../../../lib/core/clock.js';
import { nextTurn } from '../../../../lib/core/real-timers.js';
import { withTimeout } from '../../../../lib/core/requests/store-timeout.js';

/** Replies to every message, and wakes the thread that waits for its reply to be on the way. */
const REPLIER = `
const { parentPort, workerData } = require('node:worker_threads');
parentPort.on('message', () => {
  parentPort.postMessage('reply');
  Atomics.store(workerData, 0, 1);
  Atomics.notify(workerData, 0);
});
parentPort.postMessage('ready');`;

it('a reply that arrived while the process stood still counts, although its time is over', async () => {
  const wasSent = new Int32Array(new SharedArrayBuffer(4));
  const replier = new Worker(REPLIER, { eval: true, workerData: wasSent });
  await once(replier, 'message');
  // Out of the callback that reads messages, so that timers come next.
  await nextTurn();
  const reply = once(replier, 'message');
  replier.postMessage('request');
  const isInTime = withTimeout(systemClock, 1, reply);
  const sentMs = systemClock.monotonicMs();
  Atomics.wait(wasSent, 0, 0);
  while (systemClock.monotonicMs() - sentMs < 2) void 0;
  expect(await isInTime).toBe(true);
  await replier.terminate();
});

it('work that never ends is given up', async () => {
  expect(await withTimeout(systemClock, 1, new Promise(() => undefined))).toBe(false);
  expect(await withTimeout(systemClock, 0, new Promise(() => undefined))).toBe(false);
});

it('work that has ended counts, although no time is left', async () => {
  expect(await withTimeout(systemClock, 0, Promise.resolve())).toBe(true);
});
