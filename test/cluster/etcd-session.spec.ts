import { afterAll, afterEach, beforeAll, expect, it } from 'vitest';
import { etcdBackend } from '../../lib/backends/etcd/index.js';
import { put } from '../../lib/backends/etcd/rpc/operations.js';
import { Session, SessionOverError } from '../../lib/backends/etcd/session/session.js';
import { startEtcd } from '../services/etcd.js';
import type { Service } from '../services/service.js';
import { etcdKeys, forgetEtcdKey, onEtcd } from '../support/etcd.js';
import { FaultyEtcdConnection } from '../support/faulty-etcd-connection.js';
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
