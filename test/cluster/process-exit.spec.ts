import { randomUUID } from 'node:crypto';
import { afterEach, describe, expect, it } from 'vitest';
import { bareLocks } from '../support/bare-locks.js';
import { type Store, backendOn, redisStore, sqlServers } from '../support/stores.js';
import { until } from '../support/until.js';
import { endAllWorkers, startWorker } from './start-worker.js';

/** Longer than the time after which an idle connection to a database is checked before its next use. */
const LONG_WORK_MS = 1_100;
const LIMIT_MS = 20_000;

const ends: (() => unknown)[] = [];
afterEach(async () => {
  for (const end of ends.splice(0)) await end();
  await endAllWorkers();
});

/** Passes when the keys are free, long before the leases of the process that has exited end. */
async function exitRightAfterLocks(store: Store, keys: readonly string[], workMs: number): Promise<void> {
  const namespace = randomUUID();
  const worker = startWorker('exit-after-lock', { store, namespace, keys, workMs });
  expect(await worker.ended).toBe(0);
  const locks = bareLocks({ backend: backendOn(store), namespace });
  ends.push(() => locks.close());
  await until(async () => (await locks.list({})).locks.length === 0);
}

describe.each([['redis', redisStore] as const, ...sqlServers])(
  'process.exit() right after withLock releases, on %s,',
  (_, storeOf) => {
    it('a lock whose work took long', () => exitRightAfterLocks(storeOf(), ['key'], LONG_WORK_MS), LIMIT_MS);

    it('several locks', () => exitRightAfterLocks(storeOf(), ['a', 'b', 'c', 'd'], 0), LIMIT_MS);
  },
);
