import { randomUUID } from 'node:crypto';
import { afterEach, expect, it, vi } from 'vitest';
import { zookeeperBackend } from '../../lib/backends/zookeeper/index.js';
import { EntryCreation } from '../../lib/backends/zookeeper/locks/entry-creation.js';
import type { LockBackend, TickRequest } from '../../lib/core/backend.js';
import { createAcquireRequest, createAcquisitionId } from '../../lib/testing/laws/law.js';
import { TICK_TIME_MS } from '../services/zookeeper.js';
import { serviceUrl } from '../support/environment.js';
import { Gate } from '../support/gate.js';
import { SESSION_TIMEOUT_MS } from '../support/zookeeper.js';

const TIMEOUT_MS = 10_000;
const LEASE_MS = 60_000;
const HOUR_MS = 3_600_000;
const backends: LockBackend[] = [];

const open = (): LockBackend => {
  const servers = serviceUrl('TEST_ZOOKEEPER_URL');
  const backend = zookeeperBackend({
    ...{ servers, sessionTimeoutMs: SESSION_TIMEOUT_MS, tickTimeMs: TICK_TIME_MS },
  });
  backends.push(backend);
  return backend;
};

const acquire = async (backend: LockBackend, request: ReturnType<typeof createAcquireRequest>) =>
  (await backend.execute({ acquire: [request] }, TIMEOUT_MS)).acquire[0]!.kind;

afterEach(async () => {
  vi.restoreAllMocks();
  for (const backend of backends.splice(0)) await backend.close();
});

it('a claim of a tick is refused if the lock of the run was granted after the claim had read that it is free', async () => {
  const [ours, theirs] = [open(), open()];
  const key = randomUUID();
  const tick = { tickMs: Date.now(), maxEarlyMs: HOUR_MS, staleAfterMs: HOUR_MS };
  const claim = createAcquireRequest(createAcquisitionId(key), { leaseMs: LEASE_MS, tick }) as TickRequest;
  const other = createAcquireRequest(createAcquisitionId(key), { leaseMs: LEASE_MS });
  const create = vi.spyOn(EntryCreation.prototype, 'create');
  const granted: string[] = [];
  create.mockImplementationOnce(async function (this: EntryCreation, ...parameters) {
    granted.push(await acquire(theirs, other));
    return this.create(...parameters);
  });
  expect(await acquire(ours, claim)).toBe('taken');
  expect(granted).toEqual(['granted']);
});

it('a claim of a process that died between its two steps keeps others waiting for a moment only', async () => {
  const [ours, theirs] = [open(), open()];
  const key = randomUUID();
  const claimOf = (tickMs: number) => {
    const tick = { tickMs, maxEarlyMs: HOUR_MS, staleAfterMs: HOUR_MS };
    return createAcquireRequest(createAcquisitionId(key), { leaseMs: LEASE_MS, tick }) as TickRequest;
  };
  const create = vi.spyOn(EntryCreation.prototype, 'create');
  const reached = new Gate();
  create.mockImplementationOnce(async function (this: EntryCreation, ...parameters) {
    await this.create(...parameters);
    reached.open();
    return new Promise<never>(() => undefined);
  });
  void acquire(ours, claimOf(Date.now() - 1_000));
  await reached.passed;
  expect(await acquire(theirs, claimOf(Date.now()))).toBe('granted');
});
