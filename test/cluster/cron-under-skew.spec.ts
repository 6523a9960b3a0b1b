import { randomUUID } from 'node:crypto';
import { afterEach, expect, it } from 'vitest';
import { redisStore } from '../support/stores.js';
import { watchForStandstills } from '../support/standstills.js';
import { until } from '../support/until.js';
import { endAllWorkers, startWorker } from './start-worker.js';

afterEach(endAllWorkers);

const SKEWS_MS = [0, 0, 90, -90, 90, -90, 1_000, -1_000];
const TICKS = 20;

it('eight replicas with clocks up to a second off run each tick exactly once', async () => {
  const namespace = randomUUID();
  const watch = watchForStandstills();
  const workers = SKEWS_MS.map((skewMs, index) =>
    startWorker<{ tickMs?: number; isReady?: boolean }>('cron', {
      store: redisStore(),
      namespace,
      skewMs,
      schedulers: index === 0 ? 2 : 1, // As when ScheduleModule.forRoot() is imported twice.
    }),
  );
  const ticks = () => workers.flatMap(({ messages }) => messages.flatMap(({ tickMs }) => tickMs ?? []));
  await until(() => workers.every(({ messages }) => messages.some(({ isReady }) => isReady)));
  const first = Math.max(...ticks(), Date.now());
  const due = Array.from(
    { length: TICKS },
    (_, index) => Math.ceil(first / 1_000) * 1_000 + (index + 2) * 1_000,
  );
  await until(() => Math.max(...ticks()) > due.at(-1)!);
  for (const { process } of workers) process.send('close');
  expect(await Promise.all(workers.map(({ ended }) => ended))).toEqual(SKEWS_MS.map(() => 0));
  watch.end();
  const inTime = due.filter((tick) => watch.wasRunningAt(tick));
  expect(inTime.length).toBeGreaterThan(0);
  const runs = inTime.map((tick) => ticks().filter((run) => run === tick).length);
  expect(runs).toEqual(inTime.map(() => 1));
  expect(new Set(ticks()).size).toBe(ticks().length);
}, 120_000);
