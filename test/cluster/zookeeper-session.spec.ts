import { afterAll, afterEach, beforeAll, expect, it, vi } from 'vitest';
import { type ZookeeperBackend, zookeeperBackend } from '../../lib/backends/zookeeper/index.js';
import { entriesOf } from '../../lib/backends/zookeeper/keyspace.js';
import { Session } from '../../lib/backends/zookeeper/session/session.js';
import { settle } from '../../lib/backends/zookeeper/session/settle.js';
import { TickSnapshots } from '../../lib/backends/zookeeper/ticks/tick-snapshots.js';
import { TickStates } from '../../lib/backends/zookeeper/ticks/tick-states.js';
import type { SessionReply } from '../../lib/backends/zookeeper/wire/connection-types.js';
import { HostConnection } from '../../lib/backends/zookeeper/wire/host-connection.js';
import { create, getChildren, sync } from '../../lib/backends/zookeeper/wire/operations.js';
import { ZookeeperError, notConnectedError } from '../../lib/backends/zookeeper/wire/zookeeper-errors.js';
import type { AcquisitionId } from '../../lib/core/backend.js';
import type { Granted } from '../../lib/core/backend-results.js';
import { delay } from '../../lib/core/real-timers.js';
import { deadlineIn } from '../../lib/core/requests/deadline.js';
import { StoreTimeoutError } from '../../lib/core/requests/store-timeout.js';
import type { TickClaim } from '../../lib/core/tick.js';
import { createAcquireRequest, createAcquisitionId, createTickClaim } from '../../lib/testing/laws/law.js';
import { FaultProxy } from '../faults/injection/fault-proxy.js';
import { freeze, thaw } from '../faults/injection/freeze.js';
import type { Service } from '../services/service.js';
import { TICK_TIME_MS, startZookeeper } from '../services/zookeeper.js';
import { blockEventLoop } from '../support/block-event-loop.js';
import { Gate } from '../support/gate.js';
import { until } from '../support/until.js';
import {
  SESSION_TIMEOUT_MS,
  onZookeeper,
  openZookeeperClient,
  removeAll,
  zookeeperKeys,
} from '../support/zookeeper.js';

const TIMEOUT_MS = 10_000;
const SHORT_MS = 200;
const LEASE_MS = 30_000;
const NO_DATA = Buffer.from('{}');
let server: Service;
const opened: { close(): unknown }[] = [];

const openProxy = async () => {
  const proxy = await FaultProxy.to(server.port);
  opened.push(proxy);
  return proxy;
};

const openClient = (servers: string = server.url, sessionTimeoutMs?: number) => {
  const client = openZookeeperClient(servers, sessionTimeoutMs);
  opened.unshift({ close: () => client.close(true) });
  return client;
};

const open = (servers: string = server.url) => {
  const options = { servers, sessionTimeoutMs: SESSION_TIMEOUT_MS, tickTimeMs: TICK_TIME_MS };
  const backend = zookeeperBackend(options);
  opened.unshift(backend);
  return backend;
};

const readNames = (key: string) =>
  onZookeeper(server.url, async (client) => {
    const bucket = zookeeperKeys.bucketOf(key);
    const { names } = await client.read(getChildren(bucket), TIMEOUT_MS);
    return entriesOf(bucket, names, key).map(({ holder }) => holder);
  });

const REQUESTS: [name: string, options: { tick?: TickClaim }][] = [
  ['an acquisition', {}],
  ['a claim', { tick: createTickClaim(Date.now()) }],
];

/** Holds the next confirmation of a session until the gate opens. */
function holdConfirm() {
  const [gate, reached] = [new Gate(), new Gate()];
  const confirm = Object.getOwnPropertyDescriptor(Session.prototype, 'confirm')!.value as Session['confirm'];
  vi.spyOn(Session.prototype, 'confirm').mockImplementationOnce(async function (this: Session, ...args) {
    reached.open();
    await gate.passed;
    return confirm.apply(this, args);
  });
  return { gate, reached: reached.passed };
}

it.each(REQUESTS)(
  '%s is not reported as never sent when its entry was created and the rest failed',
  async (_, options) => {
    const backend = open();
    await backend.check(TIMEOUT_MS);
    const lost = notConnectedError('zookeeper');
    vi.spyOn(Session.prototype, 'confirm').mockRejectedValueOnce(lost);
    const request = createAcquireRequest(createAcquisitionId('rest'), options);
    const { acquire } = await backend.execute({ acquire: [request] }, TIMEOUT_MS);
    expect(acquire).toEqual([{ kind: 'unknown', cause: lost, isConnectionLost: true }]);
  },
);

it.each(REQUESTS)('%s whose reply arrives while the session is closed is not granted', async (_, options) => {
  const ours = open();
  await ours.check(TIMEOUT_MS);
  const { gate, reached } = holdConfirm();
  const request = createAcquireRequest(createAcquisitionId('closed'), options);
  const acquiring = ours.execute({ acquire: [request] }, TIMEOUT_MS);
  await reached;
  const closing = ours.close();
  gate.open();
  const [{ acquire }] = await Promise.all([acquiring, closing]);
  expect(acquire[0]).toEqual({ kind: 'unknown', cause: expect.any(ZookeeperError) });
});

const entry = (key: string, holder: string) =>
  create({
    ...{ path: zookeeperKeys.lock(key, holder), data: NO_DATA, kind: 'ephemeralSequential' as const },
    acl: [{ permissions: 31, scheme: 'world', id: 'anyone' }],
  });

beforeAll(async () => {
  server = await startZookeeper();
});
afterEach(async () => {
  for (const one of opened.splice(0)) await one.close();
});
afterAll(() => server.stop());

it('a request that is on its way when its connection is left never takes effect once another one was opened', async () => {
  const proxy = await openProxy();
  const client = openClient(`127.0.0.1:${proxy.port},${server.url}`);
  const session = await client.ready(deadlineIn(TIMEOUT_MS));
  const bucket = zookeeperKeys.bucketOf('late');
  await client.createContainer(session, bucket, deadlineIn(TIMEOUT_MS));
  proxy.setConditions({ up: 'hold' });
  const late = session.send(entry('late', 'late'));
  await expect(session.await(late, deadlineIn(2 * SHORT_MS))).rejects.toThrow(StoreTimeoutError);
  await expect(late).rejects.toThrow(/lost before a reply/);
  await settle(session, late);
  // It is delivered now, over the connection of before.
  proxy.heal();
  await client.call(entry('late', 'next'), TIMEOUT_MS);
  await until(() => !proxy.hasConnections);
  expect(await readNames('late')).toEqual(['next']);
});

/** Ends the session of the client behind the proxy, as ZooKeeper does when it has not received anything from it. */
async function endSession(proxy: FaultProxy): Promise<void> {
  const found: SessionReply[] = [];
  const holdsFrom = (request: Buffer) => {
    // A client that connects again sends these. See `HostConnection.open`.
    const [id, password] = [request.readBigInt64BE(20), Buffer.from(request.subarray(32, 48))];
    if (found.length === 0) found.push({ id, password, timeoutMs: SESSION_TIMEOUT_MS });
    // It does not arrive before the session has ended.
    return true;
  };
  proxy.setConditions({ holdsFrom });
  proxy.resetAll();
  await until(() => found.length > 0);
  const [session] = found as [SessionReply];
  const settings = { tls: undefined, digest: undefined };
  const connection = new HostConnection({ host: '127.0.0.1', port: server.port }, settings);
  await connection.open({ ...session, lastZxid: 0n }, settings);
  await connection.endSession();
  connection.close();
  proxy.heal();
}

const settings = { leaseMs: LEASE_MS, retryWithinMs: LEASE_MS };
const ask = async (on: ZookeeperBackend, acquisition: AcquisitionId) =>
  (await on.execute({ acquire: [createAcquireRequest(acquisition, settings)] }, TIMEOUT_MS)).acquire[0];
const renew = async (on: ZookeeperBackend, acquisition: AcquisitionId) =>
  (await on.execute({ renew: [{ ...acquisition, leaseMs: LEASE_MS }] }, TIMEOUT_MS)).renew[0]?.kind;

it('all locks of a session that has ended are lost, waiters ask again, and the next session grants larger tokens', async () => {
  const proxy = await openProxy();
  const [ours, theirs] = [open(`127.0.0.1:${proxy.port}`), open()];
  const keys: (string | undefined)[] = [];
  ours.onReleased(({ key }) => keys.push(key));
  const [held, holder, waiter] = [
    createAcquisitionId('held'),
    createAcquisitionId('queue'),
    createAcquisitionId('queue'),
  ];
  expect((await ask(theirs, holder))?.kind).toBe('granted');
  const granted = (await ask(ours, held)) as Granted;
  expect(granted.kind).toBe('granted');
  expect(await ask(ours, waiter)).toMatchObject({ kind: 'taken', isQueued: true, willBeNotified: true });
  await endSession(proxy);
  await until(async () => (await renew(ours, held)) === 'lost');
  expect(keys).toContain(undefined);
  const next = (await ask(ours, held)) as Granted;
  expect(next.kind).toBe('granted');
  expect(next.fencingToken).toBeGreaterThan(granted.fencingToken);
  expect(await ask(ours, waiter)).toMatchObject({ kind: 'taken', isQueued: true });
  expect((await theirs.inspect('queue', TIMEOUT_MS))?.queued).toBe(1);
});

it('a lock of a session that has ended is released without a trace', async () => {
  const proxy = await openProxy();
  const ours = open(`127.0.0.1:${proxy.port}`);
  const held = createAcquisitionId('over');
  expect((await ask(ours, held))?.kind).toBe('granted');
  await endSession(proxy);
  const { release } = await ours.execute({ release: [held] }, TIMEOUT_MS);
  expect(['gone', 'unknown']).toContain(release[0]?.kind);
  expect((await ask(open(), createAcquisitionId('over')))?.kind).toBe('granted');
});

it('a pause whose reply was lost is refused only once it cannot take effect any more', async () => {
  const proxy = await openProxy();
  const client = openClient(`127.0.0.1:${proxy.port},${server.url}`);
  const ticks = new TickStates(client, new TickSnapshots(client));
  await ticks.register('paused', TIMEOUT_MS);
  const isWrite = (request: Buffer) => request.includes('"isPaused":true');
  proxy.setConditions({ holdsFrom: isWrite });
  await expect(ticks.setPaused('paused', true, 3 * SHORT_MS)).rejects.toThrow();
  // It is delivered now, over the connection of before.
  proxy.heal();
  await until(() => !proxy.hasConnections);
  expect((await ticks.read('paused', TIMEOUT_MS)).isPaused ?? false).toBe(false);
});

it('everything is created again after somebody has deleted it, and locks of before are lost', async () => {
  const backend = open();
  const held = createAcquisitionId('deleted');
  expect((await ask(backend, held))?.kind).toBe('granted');
  await onZookeeper(server.url, (client) => removeAll(client, zookeeperKeys.root));
  await until(async () => (await renew(backend, held)) === 'lost');
  expect((await ask(backend, held))?.kind).toBe('granted');
});

it('a caller waits for a slow server only for its own time, and the server is left', async () => {
  const client = openClient();
  const session = await client.ready(deadlineIn(TIMEOUT_MS));
  await freeze(server);
  try {
    const reply = session.send(sync('/'));
    await expect(session.await(reply, deadlineIn(2 * SHORT_MS))).rejects.toThrow(StoreTimeoutError);
    await expect(reply).rejects.toThrow(/lost before a reply/);
  } finally {
    thaw(server);
  }
});

it('a process that was busy for longer than a timeout gets the reply that waits for it, and keeps its connection', async () => {
  const client = openClient();
  let timesLost = 0;
  client.onLost(() => (timesLost += 1));
  const session = await client.ready(deadlineIn(TIMEOUT_MS));
  await freeze(server);
  const reply = session.await(session.send(sync('/')), deadlineIn(4 * SHORT_MS));
  // Time for the request to leave this process. The server replies while the event loop is blocked.
  await delay(SHORT_MS / 2);
  await new Promise(setImmediate);
  thaw(server);
  blockEventLoop(8 * SHORT_MS);
  await reply;
  expect(timesLost).toBe(0);
});

it('a process that was busy while it waited for a reply does not blame the server', async () => {
  const client = openClient();
  let timesLost = 0;
  client.onLost(() => (timesLost += 1));
  const session = await client.ready(deadlineIn(TIMEOUT_MS));
  await freeze(server);
  try {
    const late = session
      .await(session.send(sync('/')), deadlineIn(2 * SHORT_MS))
      .catch((error: unknown) => error);
    await new Promise(setImmediate);
    blockEventLoop(4 * SHORT_MS);
    expect(await late).toBeInstanceOf(StoreTimeoutError);
    expect(timesLost).toBe(0);
  } finally {
    thaw(server);
  }
});

it('a server that stops answering is left for the next one, also if nobody waits for a reply', async () => {
  const proxy = await openProxy();
  const client = openClient(`127.0.0.1:${proxy.port},${server.url}`, 2_000);
  client.isInUse = () => true;
  const session = await client.ready(deadlineIn(TIMEOUT_MS));
  let timesLost = 0;
  client.onLost(() => (timesLost += 1));
  proxy.setConditions({ up: 'hold', down: 'hold' });
  await until(() => timesLost === 1);
  await session.ready(TIMEOUT_MS);
  await session.confirm(1_500, TIMEOUT_MS);
  expect(client.session).toBe(session);
});

it('a session that may end before the lease makes the lock uncertain to its holder', async () => {
  const ours = open();
  const request = createAcquireRequest(createAcquisitionId('uncertain'));
  await ours.execute({ acquire: [request] }, TIMEOUT_MS);
  expect(await ours.inspect(request.key, TIMEOUT_MS)).not.toHaveProperty('isUncertain');
  vi.spyOn(Session.prototype, 'lasts').mockReturnValueOnce(false);
  expect(await ours.inspect(request.key, TIMEOUT_MS)).toMatchObject({ isUncertain: true });
});
