import { randomUUID } from 'node:crypto';
import { afterAll, afterEach, expect, it } from 'vitest';
import { Redis } from 'ioredis';
import { serviceUrl } from '../support/environment.js';
import { redisStore } from '../support/stores.js';
import { type HoldRecord, killContenders, overtakings } from '../faults/scenarios/kill-contenders.js';
import { endAllWorkers } from './start-worker.js';

const admin = new Redis(serviceUrl('TEST_REDIS_URL'));
afterEach(endAllWorkers);
afterAll(() => admin.quit());

it('processes that are killed leave the others their order, and nothing in the store', async () => {
  const namespace = randomUUID();
  const held = await killContenders({
    store: redisStore(),
    namespace,
    key: 'one',
    contenders: 6,
    leaseMs: 1_000,
    kills: 8,
    pauseMs: 500,
  });
  for (const [before, next] of pairs(held)) {
    expect(next.fencingToken > before.fencingToken).toBe(true);
    expect(next.fromMs).toBeGreaterThan(before.toMs);
  }
  expect(overtakings(held)).toEqual([]);
  expect(await admin.exists(`{${namespace}:one}:line`, `{${namespace}:one}:waiting`)).toBe(0);
}, 120_000);

const pairs = (held: readonly HoldRecord[]) =>
  held.slice(1).map((next, index) => [held[index]!, next] as const);
