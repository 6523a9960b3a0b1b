import { afterAll, afterEach, beforeAll, expect, it } from 'vitest';
import { type EtcdBackend, etcdBackend } from '../../lib/backends/etcd/index.js';
import { EntryNames } from '../../lib/backends/etcd/locks/entry-names.js';
import { OwnEntries } from '../../lib/backends/etcd/locks/own-entries.js';
import { keysOf, put, read } from '../../lib/backends/etcd/rpc/operations.js';
import { Session } from '../../lib/backends/etcd/session/session.js';
import type { AcquisitionId } from '../../lib/core/backend.js';
import { systemClock } from '../../lib/core/clock.js';
import { delay } from '../../lib/core/real-timers.js';
import { createAcquireRequest, createAcquisitionId } from '../../lib/testing/laws/law.js';
import { FaultProxy } from '../faults/injection/fault-proxy.js';
import { startEtcd } from '../services/etcd.js';
import type { Service } from '../services/service.js';
import { blockEventLoop } from '../support/block-event-loop.js';
import { etcdKeys, forgetEtcdKey, onEtcd } from '../support/etcd.js';
import { FaultyEtcdConnection } from '../support/faulty-etcd-connection.js';
import { until } from '../support/until.js';

const TIMEOUT_MS = 10_000;
const SHORT_LEASE_MS = 2_000;
/** While its leases are kept alive, only the process itself can delete a lock. */
const LONG_LEASE_MS = 600_000;
/** Long enough for a few requests. */
const PLACE_MS = 1_000;
let server: Service;
const opened: { close(): unknown }[] = [];

const open = (hosts: string = server.url) => {
  const backend = etcdBackend({ hosts });
  opened.unshift(backend);
  return backend;
};

const acquire = async (backend: EtcdBackend, acquisition: AcquisitionId, leaseMs: number) =>
  (await backend.execute({ acquire: [createAcquireRequest(acquisition, { leaseMs })] }, TIMEOUT_MS))
    .acquire[0]?.kind;

const untilGranted = (backend: EtcdBackend, key: string) =>
  until(async () => (await acquire(backend, createAcquisitionId(key), SHORT_LEASE_MS)) === 'granted');

const openProxy = async () => {
  const proxy = await FaultProxy.to(server.port);
  opened.push(proxy);
  return proxy;
};

beforeAll(async () => {
  server = await startEtcd();
});
afterEach(async () => {
  for (const one of opened.splice(0)) await one.close();
});
afterAll(() => server.stop());

it('a short lease ends in time although the process holds a longer one', async () => {
  const [ours, theirs] = [open(), open()];
  expect(await acquire(ours, createAcquisitionId('long'), LONG_LEASE_MS)).toBe('granted');
  expect(await acquire(ours, createAcquisitionId('short'), SHORT_LEASE_MS)).toBe('granted');
  await untilGranted(theirs, 'short');
});

it('a grant whose reply was lost ends after its lease, although its process lives on and never releases it', async () => {
  const proxy = await openProxy();
  const [ours, theirs] = [open(`127.0.0.1:${proxy.port}`), open()];
  expect(await acquire(ours, createAcquisitionId('first'), SHORT_LEASE_MS)).toBe('granted');
  proxy.setConditions({ cuts: 'reply' });
  let kind: string | undefined;
  // The request of a renewal may be cut instead.
  for (let index = 0; kind !== 'unknown'; index += 1) {
    kind = await acquire(ours, createAcquisitionId(`lost ${index}`), SHORT_LEASE_MS);
    if (kind !== 'unknown') continue;
    proxy.heal();
    await untilGranted(theirs, `lost ${index}`);
  }
});

it('a deletion that arrives late deletes no later grant of the same holder', async () => {
  const connection = new FaultyEtcdConnection(server.url);
  opened.push(connection);
  const session = new Session({ connection, keyspace: etcdKeys, ttlSeconds: 30 });
  const ownEntries = new OwnEntries(connection, new EntryNames(etcdKeys), () => undefined);
  opened.unshift(ownEntries);
  const name = etcdKeys.lock('late', 'holder');
  const grant = async () => {
    await session.prepare(SHORT_LEASE_MS, TIMEOUT_MS);
    return session.transact([put(name, Buffer.from('{}'), session.leaseId)], TIMEOUT_MS);
  };
  await grant();
  connection.loses = true;
  const endsAtMs = systemClock.monotonicMs();
  ownEntries.set({
    ...{ name, key: 'late', session, createRevision: 1n, isHeld: true, leaseMs: SHORT_LEASE_MS, endsAtMs },
  });
  await until(() => connection.delayed !== undefined && !ownEntries.isEnding(name));
  await grant();
  expect((await connection.arrive()).succeeded).toBe(false);
});

it('a lock that has ended is deleted although fences overtake its deletion', async () => {
  const connection = new FaultyEtcdConnection(server.url);
  opened.push(connection);
  const session = new Session({ connection, keyspace: etcdKeys, ttlSeconds: 30 });
  const ownEntries = new OwnEntries(connection, new EntryNames(etcdKeys), () => undefined);
  opened.unshift(ownEntries);
  const name = etcdKeys.lock('overtaken', 'holder');
  const write = () => session.transact([put(name, Buffer.from('{}'), session.leaseId)], TIMEOUT_MS);
  await session.prepare(SHORT_LEASE_MS, TIMEOUT_MS);
  await write();
  let fences = 0;
  connection.onTransaction = async ({ success }) => {
    if (!success[0]?.request_delete_range || fences === 2) return;
    fences += 1;
    connection.loses = true;
    await expect(write()).rejects.toThrow();
    await session.prepare(SHORT_LEASE_MS, TIMEOUT_MS);
  };
  ownEntries.set({
    ...{ name, key: 'overtaken', session, createRevision: 1n, isHeld: true, leaseMs: SHORT_LEASE_MS },
    endsAtMs: systemClock.monotonicMs(),
  });
  await until(() => fences === 2 && !ownEntries.isEnding(name));
  const { responses } = await onEtcd(server.url, [read({ key: name })]);
  expect(keysOf(responses[0])).toEqual([]);
});

it('an entry that is being deleted is not granted', async () => {
  const proxy = await openProxy();
  const backend = open(`127.0.0.1:${proxy.port}`);
  const [holder, waiter] = [createAcquisitionId('ending'), createAcquisitionId('ending')];
  const theirs = open();
  expect(await acquire(theirs, holder, LONG_LEASE_MS)).toBe('granted');
  const wait = async (retryWithinMs: number) => {
    const request = createAcquireRequest(waiter, { leaseMs: LONG_LEASE_MS, retryWithinMs });
    return (await backend.execute({ acquire: [request] }, TIMEOUT_MS)).acquire[0];
  };
  expect(await wait(200)).toMatchObject({ kind: 'taken', isQueued: true });
  await theirs.execute({ release: [holder] }, TIMEOUT_MS);
  // The deletion of the place is on its way when the waiter comes back.
  proxy.setConditions({ up: 'hold' });
  await delay(400);
  const returned = wait(60_000);
  proxy.heal();
  expect((await returned)?.kind).toBe('taken');
  await until(async () => (await wait(60_000))?.kind === 'granted');
  const { renew } = await backend.execute({ renew: [{ ...waiter, leaseMs: LONG_LEASE_MS }] }, TIMEOUT_MS);
  expect(renew[0]?.kind).toBe('renewed');
});

/** Its place in the queue ends soon, and then the key becomes free. */
const queueBriefly = async (backend: EtcdBackend, key: string) => {
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
  const { wait, renew } = await queueBriefly(open(), 'frozen');
  // As another caller does with the place of one that does not come when it is its turn.
  await forgetEtcdKey(server.url, 'frozen');
  blockEventLoop(PLACE_MS);
  await until(async () => (await wait(60_000))?.kind === 'granted');
  expect(await renew()).toBe('renewed');
});

it('a place that ends while its grant is on the way is not deleted', async () => {
  const proxy = await openProxy();
  const { wait, renew, theirs } = await queueBriefly(open(`127.0.0.1:${proxy.port}`), 'unread');
  proxy.setConditions({ down: 'hold' });
  const returned = wait(60_000);
  await until(async () => (await theirs.inspect('unread', TIMEOUT_MS)) !== null);
  // The place ends. Nothing else shows that it would not be deleted.
  await delay(PLACE_MS + 100);
  proxy.heal();
  expect((await returned)?.kind).toBe('granted');
  expect(await renew()).toBe('renewed');
});

it('a repeated acquisition of a held key writes nothing', async () => {
  const backend = open();
  const request = createAcquireRequest(createAcquisitionId('repeated'), {
    ...{ leaseMs: LONG_LEASE_MS, retryWithinMs: 60_000 },
  });
  const readRevision = async () => {
    const { responses } = await onEtcd(server.url, [read(etcdKeys.locksOf('repeated'))]);
    return keysOf(responses[0])[0]?.mod_revision;
  };
  const first = await backend.execute({ acquire: [request] }, TIMEOUT_MS);
  expect(first.acquire[0]?.kind).toBe('granted');
  const before = await readRevision();
  const second = await backend.execute({ acquire: [request] }, TIMEOUT_MS);
  expect(second.acquire).toEqual(first.acquire);
  expect(await readRevision()).toBe(before);
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

it('a closed backend opens no connection again, whatever it still had to do', async () => {
  const proxy = await openProxy();
  const backend = open(`127.0.0.1:${proxy.port}`);
  const theirs = open();
  const holder = createAcquisitionId('closed');
  expect(await acquire(backend, holder, SHORT_LEASE_MS)).toBe('granted');
  expect(await acquire(theirs, createAcquisitionId('queue'), LONG_LEASE_MS)).toBe('granted');
  backend.onReleased(() => undefined);
  const waiter = { leaseMs: LONG_LEASE_MS, retryWithinMs: 60_000 };
  const queue = createAcquireRequest(createAcquisitionId('queue'), waiter);
  await backend.execute({ acquire: [queue] }, TIMEOUT_MS);
  // The lock ends, and cannot be deleted.
  proxy.setConditions({ up: 'hold' });
  await delay(SHORT_LEASE_MS + 100);
  const inFlight = acquire(backend, createAcquisitionId('in flight'), SHORT_LEASE_MS);
  await backend.close();
  proxy.heal();
  await inFlight;
  await until(() => !proxy.hasConnections);
  // Longer than the pauses between two deletions and two renewals. Nothing else shows that none follows.
  const endsAtMs = systemClock.monotonicMs() + 2_000;
  while (systemClock.monotonicMs() < endsAtMs) {
    expect(proxy.hasConnections).toBe(false);
    await delay(20);
  }
  expect(await acquire(backend, createAcquisitionId('opened again'), SHORT_LEASE_MS)).toBe('granted');
});
