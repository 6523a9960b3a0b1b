import { afterAll, afterEach, beforeAll, expect, it, vi } from 'vitest';
import { ChannelCredentials } from '@grpc/grpc-js';
import { etcdBackend } from '../../lib/backends/etcd/index.js';
import { EtcdConnection } from '../../lib/backends/etcd/rpc/etcd-connection.js';
import { read } from '../../lib/backends/etcd/rpc/operations.js';
import { Session } from '../../lib/backends/etcd/session/session.js';
import { delay } from '../../lib/core/real-timers.js';
import { StoreTimeoutError } from '../../lib/core/requests/store-timeout.js';
import { createAcquireRequest, createAcquisitionId } from '../../lib/testing/laws/law.js';
import { FaultProxy } from '../faults/injection/fault-proxy.js';
import { freeze, thaw } from '../faults/injection/freeze.js';
import { startEtcd } from '../services/etcd.js';
import type { Service } from '../services/service.js';
import { blockEventLoop } from '../support/block-event-loop.js';
import { etcdKeys } from '../support/etcd.js';

const TIMEOUT_MS = 10_000;
const SHORT_MS = 200;
let server: Service;
const opened: { close(): unknown }[] = [];

const openProxy = async () => {
  const proxy = await FaultProxy.to(server.port);
  opened.push(proxy);
  return proxy;
};

const openConnection = ({ port }: { readonly port: number }) => {
  const credentials = ChannelCredentials.createInsecure();
  const connection = new EtcdConnection({
    ...{ hosts: [`127.0.0.1:${port}`], credentials, auth: undefined, keyPrefix: '' },
  });
  opened.unshift(connection);
  return connection;
};

beforeAll(async () => {
  server = await startEtcd();
});
afterEach(async () => {
  vi.useRealTimers();
  for (const one of opened.splice(0)) await one.close();
});
afterAll(() => server.stop());

it('a caller waits for the renewal of a lease only for its own time', async () => {
  const proxy = await openProxy();
  const session = new Session({ connection: openConnection(proxy), keyspace: etcdKeys, ttlSeconds: 30 });
  await session.prepare(1_000, TIMEOUT_MS);
  proxy.setConditions({ up: 'hold' });
  const renewal = session.keepAlive(TIMEOUT_MS).then(() => 'renewed');
  // Its lease is as long as that of the session, so it needs a renewal.
  const caller = session.prepare(30_000, SHORT_MS);
  await expect(Promise.race([renewal, caller])).rejects.toThrow(StoreTimeoutError);
  proxy.heal();
  expect(await renewal).toBe('renewed');
});

it('a caller that joined a slow renewal, which no longer lasts for its lease, sends another', async () => {
  const proxy = await openProxy();
  const session = new Session({ connection: openConnection(proxy), keyspace: etcdKeys, ttlSeconds: 3 });
  await session.prepare(1_000, TIMEOUT_MS);
  proxy.setConditions({ up: 'hold' });
  const renewal = session.keepAlive(TIMEOUT_MS);
  // Now a lease of 2 s that begins with the renewal would end too early.
  await delay(1_100);
  const caller = session.prepare(2_000, TIMEOUT_MS);
  proxy.heal();
  await renewal;
  await caller;
});

it('a closed connection opens no channel, until it is opened again', async () => {
  const proxy = await openProxy();
  const connection = openConnection(proxy);
  const call = () => connection.call('KV.Range', { key: Buffer.from('key') }, TIMEOUT_MS);
  connection.close();
  await expect(call()).rejects.toThrow('the backend was closed');
  expect(proxy.hasConnections).toBe(false);
  connection.reopen();
  expect((await call()).kvs).toEqual([]);
});

it.each(['call', 'exchange'] as const)(
  'a request ends in time also if the timers of gRPC never fire (%s)',
  async (kind) => {
    const proxy = await openProxy();
    const connection = openConnection(proxy);
    const send = (timeoutMs: number) =>
      kind === 'call'
        ? connection.call('KV.Txn', { compare: [], success: [read(etcdKeys.locksOf('key'))] }, timeoutMs)
        : connection.exchange('Lease.LeaseKeepAlive', { ID: '1' }, timeoutMs);
    await send(TIMEOUT_MS);
    proxy.setConditions({ up: 'hold' });
    vi.useFakeTimers({ toFake: ['Date', 'setTimeout', 'clearTimeout', 'setInterval', 'clearInterval'] });
    await expect(send(SHORT_MS)).rejects.toThrow(StoreTimeoutError);
  },
);

it('a process that was busy for longer than a timeout gets the reply that waits for it, and keeps its connection', async () => {
  const connection = openConnection(server);
  let timesLeft = 0;
  connection.onLeave(() => (timesLeft += 1));
  const send = (timeoutMs: number) =>
    connection.call('KV.Txn', { compare: [], success: [read(etcdKeys.locksOf('key'))] }, timeoutMs);
  await send(TIMEOUT_MS);
  await freeze(server);
  const unary = send(4 * SHORT_MS);
  const stream = connection.exchange('Lease.LeaseKeepAlive', { ID: '1' }, 4 * SHORT_MS);
  // Time for both requests to leave this process. The server replies while the event loop is blocked.
  await delay(SHORT_MS / 2);
  // After an immediate, timers that are due come first, and only then what can be read.
  await new Promise(setImmediate);
  thaw(server);
  blockEventLoop(8 * SHORT_MS);
  const replies = await Promise.allSettled([unary, stream]);
  expect({ replies: replies.map(({ status }) => status), timesLeft }).toEqual({
    replies: ['fulfilled', 'fulfilled'],
    timesLeft: 0,
  });
});

it('a process that was busy while it waited for a reply does not blame the host', async () => {
  const connection = openConnection(server);
  let timesLeft = 0;
  connection.onLeave(() => (timesLeft += 1));
  const send = (timeoutMs: number) =>
    connection.call('KV.Txn', { compare: [], success: [read(etcdKeys.locksOf('key'))] }, timeoutMs);
  await send(TIMEOUT_MS);
  await freeze(server);
  try {
    const late = send(SHORT_MS).catch((error: unknown) => error);
    await new Promise(setImmediate);
    blockEventLoop(4 * SHORT_MS);
    expect(await late).toBeInstanceOf(StoreTimeoutError);
    expect(timesLeft).toBe(0);
  } finally {
    thaw(server);
  }
});

it('requests settle, and the next one is granted, after a half-open connection, a blocked event loop and a partition', async () => {
  const proxies = [await openProxy(), await openProxy()];
  const backend = etcdBackend({ hosts: proxies.map(({ port }) => `127.0.0.1:${port}`) });
  opened.unshift(backend);
  const acquire = async (key: string, timeoutMs: number) => {
    const request = createAcquireRequest(createAcquisitionId(key), { leaseMs: 30_000 });
    return (await backend.execute({ acquire: [request] }, timeoutMs)).acquire[0]?.kind;
  };
  expect(await acquire('before', TIMEOUT_MS)).toBe('granted');
  for (const proxy of proxies) {
    proxy.setConditions({ up: 'drop', down: 'drop' });
    proxy.halfOpen();
  }
  const during = ['one', 'two', 'three'].map((key) => acquire(key, SHORT_MS));
  blockEventLoop(2 * SHORT_MS);
  for (const proxy of proxies) proxy.setConditions({ up: 'hold', down: 'hold' });
  during.push(acquire('four', SHORT_MS));
  expect(await Promise.all(during)).not.toContain('granted');
  for (const proxy of proxies) proxy.heal();
  let kind: string | undefined;
  do kind = await acquire('after', TIMEOUT_MS);
  while (kind !== 'granted');
});
