import { afterAll, afterEach, beforeAll, expect, it } from 'vitest';
import { etcdBackend } from '../../lib/backends/etcd/index.js';
import { LockExtension } from '../../lib/backends/etcd/locks/lock-extension.js';
import { EntryNames } from '../../lib/backends/etcd/locks/entry-names.js';
import { OwnEntries } from '../../lib/backends/etcd/locks/own-entries.js';
import { EtcdError } from '../../lib/backends/etcd/rpc/etcd-errors.js';
import { keysOf, put, read } from '../../lib/backends/etcd/rpc/operations.js';
import { Session, SessionOverError } from '../../lib/backends/etcd/session/session.js';
import { Sessions } from '../../lib/backends/etcd/session/sessions.js';
import { startEtcd } from '../services/etcd.js';
import type { Service } from '../services/service.js';
import { etcdKeys, forgetEtcdKey, onEtcd } from '../support/etcd.js';
import { FaultyEtcdConnection } from '../support/faulty-etcd-connection.js';
import { until } from '../support/until.js';
import { createAcquireRequest, createAcquisitionId } from '../../lib/testing/laws/law.js';

const TIMEOUT_MS = 10_000;
let server: Service;
const opened: { close(): unknown }[] = [];

const openSession = async (ttlSeconds = 30) => {
  const connection = new FaultyEtcdConnection(server.url);
  opened.push(connection);
  const session = new Session({ connection, keyspace: etcdKeys, ttlSeconds });
  await session.prepare(1_000, TIMEOUT_MS);
  return { connection, session };
};

beforeAll(async () => {
  server = await startEtcd();
});
afterEach(() => Promise.all(opened.splice(0).map((one) => one.close())));
afterAll(() => server.stop());

it('a grant whose outcome is unknown never takes effect after the next one was prepared', async () => {
  const { connection, session } = await openSession();
  const name = etcdKeys.lock('late', 'holder');
  connection.loses = true;
  await expect(
    session.transact([put(name, Buffer.from('{}'), session.leaseId)], TIMEOUT_MS),
  ).rejects.toThrow();
  await session.prepare(1_000, TIMEOUT_MS);
  expect((await connection.arrive()).succeeded).toBe(false);
});

const lose = async ({ connection, session }: Awaited<ReturnType<typeof openSession>>) => {
  connection.loses = true;
  const operations = [put(etcdKeys.lock('late', 'holder'), Buffer.from('{}'), session.leaseId)];
  await expect(session.transact(operations, TIMEOUT_MS)).rejects.toThrow();
};

/** Returns what lets the reply go on. */
const holdNext = (connection: FaultyEtcdConnection, method: 'KV.Txn' | 'KV.Range') => {
  let release: () => void = () => undefined;
  connection.holds = { method, until: new Promise<void>((resolve) => (release = resolve)) };
  return () => release();
};

it('a grant is fenced off although a reply of before the last fence arrives late', async () => {
  const opened = await openSession();
  const { connection, session } = opened;
  const release = holdNext(connection, 'KV.Range');
  const renewal = session.keepAlive(TIMEOUT_MS);
  await until(() => !connection.holds);
  await lose(opened);
  await session.prepare(1_000, TIMEOUT_MS);
  await lose(opened);
  release();
  await renewal;
  await session.fenceOff(TIMEOUT_MS);
  expect((await connection.arrive()).succeeded).toBe(false);
});

it('a grant is fenced off although it came after a fence whose reply is on the way', async () => {
  const opened = await openSession();
  const { connection, session } = opened;
  await lose(opened);
  const release = holdNext(connection, 'KV.Txn');
  const fence = session.fenceOff(TIMEOUT_MS);
  await until(() => !connection.holds);
  // This shows the session the key that the fence has written.
  await session.transact([read({ key: etcdKeys.lock('late', 'holder') })], TIMEOUT_MS);
  await lose(opened);
  release();
  await fence;
  await session.fenceOff(TIMEOUT_MS);
  expect((await connection.arrive()).succeeded).toBe(false);
});

it('a transaction that a fence overtakes is sent again', async () => {
  const opened = await openSession();
  const { connection, session } = opened;
  await lose(opened);
  let isFenced = false;
  connection.onTransaction = async ({ success }) => {
    if (isFenced || !success[0]?.request_range) return;
    isFenced = true;
    await session.fenceOff(TIMEOUT_MS);
  };
  const operations = [read({ key: etcdKeys.lock('late', 'holder') })];
  expect((await session.transact(operations, TIMEOUT_MS)).succeeded).toBe(true);
  expect(isFenced).toBe(true);
});

it('held locks are renewed although etcd is full and a grant has an unknown outcome', async () => {
  const opened = await openSession();
  const { connection, session } = opened;
  const name = etcdKeys.lock('full', 'holder');
  const ownEntries = new OwnEntries(connection, new EntryNames(etcdKeys), () => undefined);
  const sessions = new Sessions({ connection, keyspace: etcdKeys, isInUse: () => true });
  const extension = new LockExtension({ keyspace: etcdKeys, sessions, ownEntries });
  const value = {
    isHeld: true as const,
    holder: 'holder',
    instance: 'x',
    leaseMs: 30_000,
    sinceMs: 0,
    tokenCount: 1,
  };
  const lock = { name, key: 'full', holder: 'holder', value, createRevision: 1n, modRevision: 1n };
  const endsAtMs = Infinity;
  ownEntries.set({ ...lock, session, isHeld: true, leaseMs: 1_000, endsAtMs });
  await lose(opened);
  connection.onTransaction = ({ success }) =>
    success.some((one) => one.request_put)
      ? Promise.reject(new EtcdError('no space', { hasNoEffect: true }))
      : Promise.resolve();
  await session.keepAlive(TIMEOUT_MS);
  expect(await extension.extend({ ...lock, leaseId: session.leaseId }, 1_000, TIMEOUT_MS)).toBe(true);
  await expect(session.prepare(1_000, TIMEOUT_MS)).rejects.toThrow('no space');
  ownEntries.close();
});

it('a session lasts although the key of a failed attempt to open it is written late, and ends with the lease of that attempt', async () => {
  const connection = new FaultyEtcdConnection(server.url);
  opened.push(connection);
  const session = new Session({ connection, keyspace: etcdKeys, ttlSeconds: 2 });
  connection.loses = true;
  await expect(session.prepare(1_000, TIMEOUT_MS)).rejects.toThrow();
  await session.prepare(1_000, TIMEOUT_MS);
  await connection.arrive();
  const { key } = connection.delayed!.success[0]!.request_put!;
  await until(async () => {
    await session.keepAlive(TIMEOUT_MS);
    const { responses } = await onEtcd(server.url, [read({ key })]);
    return keysOf(responses[0]).length === 0;
  });
  await session.keepAlive(TIMEOUT_MS);
  expect(session.isOver).toBe(false);
});

it('a session whose key is gone grants nothing', async () => {
  const { session } = await openSession();
  await onEtcd(server.url, [
    { request_delete_range: { key: etcdKeys.session(''), range_end: Buffer.of(0xff) } },
  ]);
  const name = etcdKeys.lock('over', 'holder');
  await expect(session.transact([put(name, Buffer.from('{}'))], TIMEOUT_MS)).rejects.toThrow(
    SessionOverError,
  );
  expect(session.isOver).toBe(true);
});

it('a lease counts as confirmed only within one term of the leader', async () => {
  const { connection, session } = await openSession(2);
  connection.termOf = (reply) => ({ ...reply, header: { ...reply.header, raft_term: '1' } });
  await expect(session.prepare(2_000, TIMEOUT_MS)).rejects.toThrow(/changed its leader/);
  connection.termOf = undefined;
  await session.keepAlive(TIMEOUT_MS);
});

it('a queued caller whose place is gone queues again, and an own lock that was deleted is lost', async () => {
  const backend = etcdBackend({ hosts: server.url });
  opened.push(backend);
  const settings = { leaseMs: 30_000, retryWithinMs: 60_000 };
  const acquire = async (acquisition: ReturnType<typeof createAcquisitionId>) =>
    (await backend.execute({ acquire: [createAcquireRequest(acquisition, settings)] }, TIMEOUT_MS))
      .acquire[0];
  const [holder, waiter] = [createAcquisitionId('places'), createAcquisitionId('places')];
  expect((await acquire(holder))?.kind).toBe('granted');
  expect(await acquire(waiter)).toMatchObject({ kind: 'taken', isQueued: true });
  await forgetEtcdKey(server.url, 'places');
  const { renew } = await backend.execute({ renew: [{ ...holder, leaseMs: 30_000 }] }, TIMEOUT_MS);
  expect(renew[0]?.kind).toBe('lost');
  expect((await acquire(waiter))?.kind).toBe('granted');
});
