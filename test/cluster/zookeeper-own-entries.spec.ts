import { afterAll, afterEach, beforeAll, expect, it, vi } from 'vitest';
import { type ZookeeperBackend, zookeeperBackend } from '../../lib/backends/zookeeper/index.js';
import { entriesOf } from '../../lib/backends/zookeeper/keyspace.js';
import { readLock } from '../../lib/backends/zookeeper/locks/queue-reader.js';
import { encodeValue, valueOf } from '../../lib/backends/zookeeper/locks/stored-lock.js';
import { HostConnection } from '../../lib/backends/zookeeper/wire/host-connection.js';
import { create, getChildren } from '../../lib/backends/zookeeper/wire/operations.js';
import { CODE, unlessCode } from '../../lib/backends/zookeeper/wire/zookeeper-errors.js';
import type { AcquisitionId } from '../../lib/core/backend.js';
import type { AcquireResult } from '../../lib/core/backend-results.js';
import { systemClock } from '../../lib/core/clock.js';
import { delay } from '../../lib/core/real-timers.js';
import { createAcquireRequest, createAcquisitionId } from '../../lib/testing/laws/law.js';
import { FaultProxy } from '../faults/injection/fault-proxy.js';
import type { Service } from '../services/service.js';
import { TICK_TIME_MS, startZookeeper } from '../services/zookeeper.js';
import { blockEventLoop } from '../support/block-event-loop.js';
import { until } from '../support/until.js';
import { SESSION_TIMEOUT_MS, forgetZookeeperKey, onZookeeper, zookeeperKeys } from '../support/zookeeper.js';

const TIMEOUT_MS = 10_000;
const SHORT_LEASE_MS = 500;
/** Within the session, so only the process itself can delete a lock. */
const LONG_LEASE_MS = 60_000;
/** Long enough for a few requests. */
const PLACE_MS = 1_000;
let server: Service;
const opened: { close(): unknown }[] = [];

const open = (servers: string = server.url) => {
  const options = { servers, sessionTimeoutMs: SESSION_TIMEOUT_MS, tickTimeMs: TICK_TIME_MS };
  const backend = zookeeperBackend(options);
  opened.unshift(backend);
  return backend;
};

const acquire = async (backend: ZookeeperBackend, acquisition: AcquisitionId, leaseMs: number) =>
  (await backend.execute({ acquire: [createAcquireRequest(acquisition, { leaseMs })] }, TIMEOUT_MS))
    .acquire[0]?.kind;

const untilGranted = (backend: ZookeeperBackend, key: string) =>
  until(async () => (await acquire(backend, createAcquisitionId(key), SHORT_LEASE_MS)) === 'granted');

const openProxy = async () => {
  const proxy = await FaultProxy.to(server.port);
  opened.push(proxy);
  return proxy;
};

/** The entries of a key in ZooKeeper, with their data. */
const readEntries = (key: string) =>
  onZookeeper(server.url, async (client) => {
    const bucket = zookeeperKeys.bucketOf(key);
    const found = await unlessCode(client.read(getChildren(bucket), TIMEOUT_MS), CODE.noNode);
    return Promise.all(
      entriesOf(bucket, found?.names ?? [], key).map((entry) => readLock(client.session, entry)),
    );
  });

beforeAll(async () => {
  server = await startZookeeper();
});
afterEach(async () => {
  for (const one of opened.splice(0)) await one.close();
});
afterAll(() => server.stop());

it('a short lease ends in time although the session of its process goes on', async () => {
  const [ours, theirs] = [open(), open()];
  expect(await acquire(ours, createAcquisitionId('long'), LONG_LEASE_MS)).toBe('granted');
  expect(await acquire(ours, createAcquisitionId('short'), SHORT_LEASE_MS)).toBe('granted');
  await untilGranted(theirs, 'short');
  expect(await acquire(theirs, createAcquisitionId('long'), SHORT_LEASE_MS)).toBe('taken');
});

/** Asks for the key over a connection that is cut before the reply arrives. */
const loseReply = async (acquisition: AcquisitionId, leaseMs: number) => {
  const proxy = await openProxy();
  const ours = open(`127.0.0.1:${proxy.port}`);
  // From then on there is a node for the locks of this key, and one request suffices.
  const first = createAcquisitionId(acquisition.key);
  expect(await acquire(ours, first, LONG_LEASE_MS)).toBe('granted');
  await ours.execute({ release: [first] }, TIMEOUT_MS);
  proxy.setConditions({ cuts: 'reply' });
  const request = createAcquireRequest(acquisition, { leaseMs, retryWithinMs: LONG_LEASE_MS });
  const { acquire: results } = await ours.execute({ acquire: [request] }, TIMEOUT_MS);
  expect(results[0]?.kind).toBe('unknown');
  expect((await readEntries(acquisition.key)).map((lock) => lock?.holder)).toEqual([acquisition.holder]);
  proxy.heal();
  return { ours, request };
};

it('a grant whose reply was lost ends after its lease, although its process lives on and never releases it', async () => {
  await loseReply(createAcquisitionId('lost'), SHORT_LEASE_MS);
  await untilGranted(open(), 'lost');
});

it('a caller whose reply was lost asks again, and gets the lock of the first request', async () => {
  const acquisition = createAcquisitionId('again');
  const { ours, request } = await loseReply(acquisition, LONG_LEASE_MS);
  let result: AcquireResult | undefined;
  do [result] = (await ours.execute({ acquire: [request] }, TIMEOUT_MS)).acquire;
  while (result?.kind === 'unknown');
  const [only, ...others] = await readEntries('again');
  expect(others).toEqual([]);
  expect(result).toEqual({ kind: 'granted', fencingToken: (only?.czxid ?? 0n) * 1_024n });
  const { renew } = await ours.execute({ renew: [{ ...acquisition, leaseMs: LONG_LEASE_MS }] }, TIMEOUT_MS);
  expect(renew[0]?.kind).toBe('renewed');
});

it('a released acquisition whose reply was lost leaves nothing', async () => {
  const acquisition = createAcquisitionId('withdrawn');
  const { ours } = await loseReply(acquisition, LONG_LEASE_MS);
  let kind: string | undefined;
  do kind = (await ours.execute({ release: [acquisition] }, TIMEOUT_MS)).release[0]?.kind;
  while (kind === 'unknown');
  expect(await readEntries('withdrawn')).toEqual([]);
});

/** Its place in the queue ends soon, and then the key becomes free. */
const queueBriefly = async (backend: ZookeeperBackend, key: string) => {
  const [holder, waiter] = [createAcquisitionId(key), createAcquisitionId(key)];
  const theirs = open();
  expect(await acquire(theirs, holder, LONG_LEASE_MS)).toBe('granted');
  const wait = async (retryWithinMs: number) => {
    const request = createAcquireRequest(waiter, { leaseMs: LONG_LEASE_MS, retryWithinMs });
    return (await backend.execute({ acquire: [request] }, TIMEOUT_MS)).acquire[0];
  };
  expect(await wait(PLACE_MS)).toMatchObject({ kind: 'taken', isQueued: true });
  await theirs.execute({ release: [holder] }, TIMEOUT_MS);
  const renew = async () =>
    (await backend.execute({ renew: [{ ...waiter, leaseMs: LONG_LEASE_MS }] }, TIMEOUT_MS)).renew[0]?.kind;
  return { wait, renew, theirs };
};

it('a caller that comes back after its place has ended is not granted what is then deleted', async () => {
  const { wait, renew } = await queueBriefly(open(), 'stopped');
  blockEventLoop(PLACE_MS);
  await until(async () => (await wait(60_000))?.kind === 'granted');
  // Longer than the deletion of a place needs. Nothing else shows that none follows.
  await delay(200);
  expect(await renew()).toBe('renewed');
});

it('a place that ends while its grant is on the way is not deleted', async () => {
  const proxy = await openProxy();
  const { wait, renew } = await queueBriefly(open(`127.0.0.1:${proxy.port}`), 'unread');
  // The claim of the place is sent, and its reply does not arrive yet.
  proxy.setConditions({
    holdsFrom: (request) => {
      if (request.includes('"isHeld":true')) proxy.setConditions({ down: 'hold' });
      return false;
    },
  });
  const returned = wait(60_000);
  // The place ends. Nothing else shows that it would not be deleted.
  await delay(PLACE_MS + 100);
  proxy.heal();
  expect((await returned)?.kind).toBe('granted');
  expect(await renew()).toBe('renewed');
});

it('a repeated acquisition of a held key, and a renewal of the same length, write nothing', async () => {
  const backend = open();
  const acquisition = createAcquisitionId('repeated');
  const request = createAcquireRequest(acquisition, { leaseMs: LONG_LEASE_MS, retryWithinMs: 60_000 });
  const first = await backend.execute({ acquire: [request] }, TIMEOUT_MS);
  expect(first.acquire[0]?.kind).toBe('granted');
  const second = await backend.execute({ acquire: [request] }, TIMEOUT_MS);
  expect(second.acquire).toEqual(first.acquire);
  await backend.execute({ renew: [{ ...acquisition, leaseMs: LONG_LEASE_MS }] }, TIMEOUT_MS);
  const [only, ...others] = await readEntries('repeated');
  expect([only?.version, others]).toEqual([0, []]);
});

it('callers that do not wait leave no place in the queue, also if they ask at the same time', async () => {
  const backends = Array.from({ length: 5 }, () => open());
  for (const backend of backends) await backend.check(TIMEOUT_MS);
  const tries = backends.map((backend) => acquire(backend, createAcquisitionId('tried'), LONG_LEASE_MS));
  expect((await Promise.all(tries)).sort()).toEqual(['granted', ...Array<string>(4).fill('taken')]);
  expect((await open().inspect('tried', TIMEOUT_MS))?.queued).toBe(0);
});

it('a caller that does not come when it is its turn loses its place', async () => {
  const [ours, absent, theirs] = [open(), open(), open()];
  const holder = createAcquisitionId('turn');
  expect(await acquire(ours, holder, LONG_LEASE_MS)).toBe('granted');
  const queued = createAcquireRequest(createAcquisitionId('turn'), {
    ...{ leaseMs: LONG_LEASE_MS, retryWithinMs: LONG_LEASE_MS },
  });
  const { acquire: results } = await absent.execute({ acquire: [queued] }, TIMEOUT_MS);
  expect(results[0]).toMatchObject({ kind: 'taken', isQueued: true });
  await ours.execute({ release: [holder] }, TIMEOUT_MS);
  await untilGranted(theirs, 'turn');
});

it('a queued caller whose place is gone queues again, and a lock that others have deleted is lost', async () => {
  const backend = open();
  const settings = { leaseMs: LONG_LEASE_MS, retryWithinMs: 60_000 };
  const ask = async (acquisition: AcquisitionId) =>
    (await backend.execute({ acquire: [createAcquireRequest(acquisition, settings)] }, TIMEOUT_MS))
      .acquire[0];
  const [holder, waiter] = [createAcquisitionId('places'), createAcquisitionId('places')];
  expect((await ask(holder))?.kind).toBe('granted');
  expect(await ask(waiter)).toMatchObject({ kind: 'taken', isQueued: true });
  await forgetZookeeperKey(server.url, 'places');
  const { renew } = await backend.execute({ renew: [{ ...holder, leaseMs: LONG_LEASE_MS }] }, TIMEOUT_MS);
  expect(renew[0]?.kind).toBe('lost');
  expect((await ask(waiter))?.kind).toBe('granted');
});

it('an entry whose deletion ZooKeeper has lost is deleted again, and no other one', async () => {
  const proxy = await openProxy();
  const opening = vi.spyOn(HostConnection.prototype, 'open');
  const ours = open(`127.0.0.1:${proxy.port}`);
  const held = createAcquisitionId('resurrected');
  expect(await acquire(ours, held, LONG_LEASE_MS)).toBe('granted');
  const [connection] = opening.mock.contexts as HostConnection[];
  const ghost = createAcquisitionId('resurrected ghost');
  const bucket = zookeeperKeys.bucketOf(ghost.key);
  const acl = [{ permissions: 31, scheme: 'world', id: 'anyone' }];
  await connection!.send(create({ path: bucket, data: Buffer.alloc(0), kind: 'container', acl }));
  const data = encodeValue(valueOf(createAcquireRequest(ghost), true));
  const [first] = await readEntries(held.key);
  // Also an earlier entry of a holder that has another one.
  for (const { key, holder } of [ghost, held]) {
    const path = zookeeperKeys.lock(key, holder);
    await connection!.send(create({ path, data, kind: 'ephemeralSequential', acl }));
  }
  const theirs = open();
  expect(await acquire(theirs, createAcquisitionId(ghost.key), SHORT_LEASE_MS)).toBe('taken');
  proxy.resetAll();
  await untilGranted(theirs, ghost.key);
  await until(async () => (await readEntries(held.key)).length === 1);
  expect(await readEntries(held.key)).toEqual([first]);
  expect(await acquire(theirs, createAcquisitionId(held.key), SHORT_LEASE_MS)).toBe('taken');
});

it('a closed backend opens no connection again, whatever it still had to do', async () => {
  const proxy = await openProxy();
  const backend = open(`127.0.0.1:${proxy.port}`);
  expect(await acquire(backend, createAcquisitionId('closed'), SHORT_LEASE_MS)).toBe('granted');
  // The lock ends, and cannot be deleted.
  proxy.setConditions({ up: 'hold' });
  await delay(SHORT_LEASE_MS + 100);
  const inFlight = acquire(backend, createAcquisitionId('in flight'), SHORT_LEASE_MS);
  await backend.close();
  proxy.heal();
  await inFlight;
  await until(() => !proxy.hasConnections);
  // Longer than the pauses between two deletions and two tries to connect. Nothing else shows that none follows.
  const endsAtMs = systemClock.monotonicMs() + 1_500;
  while (systemClock.monotonicMs() < endsAtMs) {
    expect(proxy.hasConnections).toBe(false);
    await delay(20);
  }
  expect(await acquire(backend, createAcquisitionId('opened again'), SHORT_LEASE_MS)).toBe('granted');
});

it('a closed backend without locks leaves nothing in ZooKeeper, and one with a lock leaves it to its session', async () => {
  const [empty, holding] = [open(), open()];
  const [waiter, holder] = [createAcquisitionId('left'), createAcquisitionId('left')];
  expect(await acquire(holding, holder, LONG_LEASE_MS)).toBe('granted');
  const request = createAcquireRequest(waiter, { leaseMs: LONG_LEASE_MS, retryWithinMs: LONG_LEASE_MS });
  await empty.execute({ acquire: [request] }, TIMEOUT_MS);
  await empty.close();
  expect((await readEntries('left')).map((lock) => lock?.holder)).toEqual([holder.holder]);
  await holding.close();
  expect((await readEntries('left')).map((lock) => lock?.holder)).toEqual([holder.holder]);
});
