import { randomUUID } from 'node:crypto';
import { cp, mkdtemp, rm } from 'node:fs/promises';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { Redis } from 'ioredis';
import { redlockBackend } from '../../lib/backends/redis/index.js';
import type { LockBackend } from '../../lib/core/backend.js';
import type { AcquireResult } from '../../lib/core/backend-results.js';
import type { UnknownResult } from '../../lib/core/unknown-result.js';
import { QuorumServer } from '../../lib/backends/redis/quorum/servers/quorum-server.js';
import { momentOf, systemClock } from '../../lib/core/clock.js';
import { LockUnavailableError } from '../../lib/core/errors.js';
import { bareLocks } from '../support/bare-locks.js';
import { askRedis } from '../services/ask-redis.js';
import { PERSISTENT, startOldRedis, startRedisQuorum } from '../services/redis-quorum.js';
import { ServerList } from '../../lib/backends/redis/quorum/servers/server-list.js';
import { QuorumServers } from '../../lib/backends/redis/quorum/servers/quorum-servers.js';
import { startRedis } from '../services/redis-server.js';
import type { Service } from '../services/service.js';
import { type SlowProxy, slowProxy } from '../faults/injection/slow-proxy.js';
import { until } from '../support/until.js';

/** Processes with different lists of servers must never both have a majority without a server in common. */

const LIMIT_MS = 5_000;
/** The shortest value, so that a server soon forgets a list. */
const SHORT = { maxLeaseMs: 1_000 };
/** How often a list with these options is confirmed. */
const CONFIRM_EVERY_MS = 2_000 / 3;

const ends: (() => unknown)[] = [];
afterEach(async () => {
  for (const end of ends.splice(0).reverse()) await end();
});

async function serve(count: number, args: readonly string[] = PERSISTENT): Promise<readonly Service[]> {
  const servers = await startRedisQuorum(count, args);
  for (const server of servers) ends.push(() => server.stop());
  return servers;
}

async function startAgain({ port, dataDir }: Service, hasItsData = false): Promise<Service> {
  const again = await startRedis(hasItsData ? { port, dataDir, args: PERSISTENT } : { port });
  ends.push(() => again.stop());
  return again;
}

/** A server that starts with the data of another one, and has been up for an hour. */
async function startCopy({ dataDir }: Service): Promise<Service> {
  const copied = await mkdtemp(`${dataDir}-copy-`);
  await cp(dataDir, copied, { recursive: true });
  const copy = await startOldRedis({ args: PERSISTENT, dataDir: copied });
  ends.push(async () => {
    await copy.stop();
    await rm(copied, { recursive: true, force: true });
  });
  return copy;
}

async function kill(server: Service): Promise<void> {
  server.kill('SIGKILL');
  await server.exited;
}

async function restartEmpty(server: Service): Promise<void> {
  await kill(server);
  await startAgain(server);
}

/** Afterwards it has the data of the other server. */
async function followForAMoment({ port }: Service, primary: Service): Promise<void> {
  const admin = new Redis(port);
  await admin.replicaof('127.0.0.1', primary.port);
  await until(async () => (await admin.info('replication')).includes('master_link_status:up'));
  await admin.replicaof('NO', 'ONE');
  admin.disconnect();
}

interface Address {
  readonly port: number;
}

function open(on: readonly (Address | undefined)[], options: { maxLeaseMs?: number } = {}): LockBackend {
  return openClients(
    on.map((at) => urlOf(at)),
    options,
  );
}

const urlOf = (at: Address | undefined, path = '') => ({ url: `redis://127.0.0.1:${at!.port}${path}` });

function openClients(
  clients: readonly { url: string }[],
  options: { maxLeaseMs?: number } = {},
): LockBackend {
  const backend = redlockBackend({ clients, ...options });
  ends.push(() => backend.close());
  return backend;
}

async function acquire(backend: LockBackend, key: string, leaseMs = 1_000): Promise<AcquireResult> {
  const request = { key, holder: randomUUID(), leaseMs, instance: 'a spec' };
  return (await backend.execute({ acquire: [request] }, LIMIT_MS)).acquire[0]!;
}

const grants = async (backend: LockBackend) => (await acquire(backend, randomUUID())).kind === 'granted';

const reasonOf = (result: AcquireResult) => ((result as UnknownResult).cause as Error).message;

/** Simulates a machine that slept: only its wall clock went on. */
function sleepFor(ms: number): void {
  const wallMs = systemClock.wallMs;
  const sleep = vi.spyOn(systemClock, 'wallMs').mockImplementation(() => wallMs() + ms);
  ends.push(() => sleep.mockRestore());
}

async function connect({ port }: Service): Promise<QuorumServer> {
  const server = new QuorumServer({
    ...{ index: 0, source: { url: `redis://127.0.0.1:${port}` }, maxLeaseMs: 1_000, quarantineMs: 0 },
    ...{ ballotToleranceUs: 1_000, channel: 'a spec' },
    onHandshakeChange: () => undefined,
  });
  ends.push(() => server.close());
  await server.connection.open();
  return server;
}

async function addressOf({ port }: Service): Promise<SlowProxy> {
  const proxy = await slowProxy(port);
  ends.push(() => proxy.close());
  return proxy;
}

const listOn = ({ url }: Service) =>
  askRedis(url, async (admin) => {
    const [key] = await admin.keys('*quorum:servers*');
    return key === undefined ? ([] as string[]) : admin.zrange(key, 0, -1);
  });

/** The name of a server in lists: its run, in database 0 and without a key prefix. */
const nameOf = ({ url }: Service) =>
  askRedis(url, async (admin) => `${/run_id:(\w+)/.exec(await admin.info('server'))![1]}/0/`);

const hostOf = ({ port }: Address) => `127.0.0.1:${port}`;

it.each([
  ['one call of a short lease may take', 400],
  ['a server may take to confirm the list', 900],
])('a lock is granted although storing the list takes longer than %s', async (_, pauseMs) => {
  const servers = await serve(3);
  for (const { url } of servers)
    await askRedis(url, (admin) => admin.call('CLIENT', 'PAUSE', pauseMs, 'WRITE'));
  expect((await acquire(open(servers), randomUUID())).kind).toBe('granted');
});

it('a lock is granted on servers that reply too late for a confirmation, but in time for a vote', async () => {
  const ways = await Promise.all((await serve(3)).map(addressOf));
  for (const way of ways) way.delayMs = 150;
  const backend = open(ways);
  // The first request also sends the text of the script.
  await until(async () => (await acquire(backend, randomUUID(), 10_000)).kind === 'granted');
});

it('a release does not wait for the votes that the acquisition of its batch waits for', async () => {
  const backend = open(await serve(3));
  const waits = vi.spyOn(QuorumServers.prototype, 'waitUntilReady');
  ends.push(() => waits.mockRestore());
  const request = { key: 'key', holder: randomUUID(), leaseMs: 10_000, instance: 'a spec' };
  const { acquire } = await backend.execute({ release: [request], acquire: [request] }, LIMIT_MS);
  expect(acquire).toMatchObject([{ kind: 'granted' }]);
  expect(waits.mock.calls.map(([, options]) => options)).toEqual([
    { needsVotes: false },
    { needsVotes: true },
  ]);
});

it('a late reply gives no vote to a server that another one refuses, although a newer confirmation did not name it', async () => {
  const [shared, a, b, late, away] = await serve(5);
  expect(await grants(open([shared, a, b], SHORT))).toBe(true);
  const [refusing, refused, absent] = await Promise.all([shared!, late!, away!].map(connect));
  absent!.close();
  const list = new ServerList([refusing!, refused!, absent!], 0);
  await askRedis(late!.url, (admin) => admin.call('CLIENT', 'PAUSE', '60000', 'WRITE'));
  list.open();
  await list.confirm();
  expect(list.isLate(refused!)).toBe(true);
  const isReachable = vi.spyOn(refused!, 'isReachable', 'get').mockReturnValue(false);
  ends.push(() => isReachable.mockRestore());
  await list.confirm();
  await askRedis(late!.url, (admin) => admin.call('CLIENT', 'UNPAUSE'));
  await until(() => !list.isLate(refused!));
  expect(refusing!.hasVote).toBe(true);
  expect(refused!.hasVote).toBe(false);
});

it('nothing is confirmed after close, also if a request was waiting for that', async () => {
  const servers = await serve(3);
  for (const server of servers) server.kill('SIGSTOP');
  const backend = open(servers, SHORT);
  const result = acquire(backend, randomUUID());
  await backend.close();
  const after = vi.spyOn(systemClock, 'after');
  ends.push(() => after.mockRestore());
  expect((await result).kind).toBe('unknown');
  expect(after.mock.calls.map(([delayMs]) => delayMs)).not.toContain(CONFIRM_EVERY_MS);
});

describe('a confirmed server', () => {
  async function confirmed(untilMs: number): Promise<QuorumServer> {
    const server = await connect((await serve(1))[0]!);
    server.vote.confirm(untilMs, momentOf(systemClock));
    return server;
  }

  it('has no vote after the machine of this process has slept', async () => {
    const server = await confirmed(Infinity);
    expect(server.hasVote).toBe(true);
    sleepFor(100_000);
    expect(server.hasVote).toBe(false);
  });

  it('has no vote after its confirmation has ended, or was revoked', async () => {
    expect((await confirmed(systemClock.monotonicMs())).hasVote).toBe(false);
    const server = await confirmed(Infinity);
    server.vote.revoke('another server counts in its place');
    expect(server.hasVote).toBe(false);
  });
});

describe('two processes with different lists', () => {
  it('that have one of three servers in common do not both get a lock', async () => {
    const [a, b, c, d, e] = await serve(5);
    const [ours, theirs] = [open([a, b, c]), open([c, d, e])];
    const key = randomUUID();
    expect((await acquire(ours, key)).kind).toBe('granted');
    const result = await acquire(theirs, key);
    expect(result.kind).toBe('unknown');
    const refusal = `has no vote, because ${hostOf(c!)} counts other servers`;
    expect(reasonOf(result)).toContain(`${hostOf(d!)} ${refusal}`);
    expect(reasonOf(result)).toContain(`${hostOf(e!)} ${refusal}`);
    expect(await grants(ours)).toBe(true);
  });

  it('are reported to the caller, with what to do', async () => {
    const [a, b, c, d, e] = await serve(5);
    expect(await grants(open([a, b, c]))).toBe(true);
    const locks = bareLocks({ backend: open([c, d, e]), namespace: 'lock' });
    ends.push(() => locks.close());
    const error = await locks.acquire('key').catch((cause: unknown) => cause as Error);
    expect(error).toBeInstanceOf(LockUnavailableError);
    expect((error as Error).message).toContain('give all processes the same list');
  });

  it('that have two of three servers in common do not both get a lock, even if each cannot reach another server', async () => {
    const [a, b, c, d] = await serve(4);
    const [toA, toB] = [await addressOf(a!), await addressOf(b!)];
    const [ours, theirs] = [open([toA, b, c]), open([a, toB, d])];
    expect(await grants(ours)).toBe(true);
    expect(await grants(theirs)).toBe(true); // From A and B, which are in both lists.
    for (const address of [toA, toB]) {
      address.isOpen = false;
      address.cut();
    }
    const key = randomUUID();
    expect((await acquire(ours, key)).kind).toBe('granted');
    const result = await acquire(theirs, key);
    expect(result.kind).toBe('unknown');
    expect(reasonOf(result)).toContain(`${hostOf(d!)} has no vote, because `);
  });

  it('do not both get a lock if they start at the same time', async () => {
    const [a, b, c, d, e] = await serve(5);
    const [ours, theirs] = [open([a, b, c]), open([c, d, e])];
    const key = randomUUID();
    const results = await Promise.all([acquire(ours, key), acquire(theirs, key)]);
    expect(results.map(({ kind }) => kind).sort()).toEqual(['granted', 'unknown']);
  });

  it('do not both get a lock if one list has a copy of a server', async () => {
    const [a, b, c] = await serve(3);
    const ours = open([c, a, b]);
    expect(await grants(ours)).toBe(true);
    const copy = await startCopy(c!);
    const theirs = open([copy, b, a]);
    await theirs.check!(LIMIT_MS); // From A and B, which are in both lists.
    await kill(b!);
    await until(() => grants(ours));
    const key = randomUUID();
    expect((await acquire(ours, key)).kind).toBe('granted');
    const result = await acquire(theirs, key);
    expect(result.kind).toBe('unknown');
    expect(reasonOf(result)).toContain(`${hostOf(copy)} has no vote, because `);
  });

  it('do not both get a lock if one slept for longer than servers remember a list', async () => {
    const [a, b, c, d, e] = await serve(5);
    const ours = open([a, b, c]);
    expect(await grants(ours)).toBe(true);
    // As if only the servers' time had passed.
    for (const { url } of [a!, b!, c!]) await askRedis(url, (admin) => admin.flushall());
    expect(await grants(open([c, d, e]))).toBe(true);
    sleepFor(100_000);
    const result = await acquire(ours, randomUUID());
    expect(result.kind).toBe('unknown');
    expect(reasonOf(result)).toContain(`has no vote, because ${hostOf(c!)} counts other servers`);
  });

  it.each([
    ['restarts without its data', restartEmpty],
    ['was a replica for a moment', followForAMoment],
  ])('do not both get a lock if their common server %s', async (_, loseData) => {
    const [a, b, c, d, e, f] = await serve(6);
    const toC = await addressOf(c!);
    const [ours, theirs] = [open([a, b, toC]), open([c, d, e])];
    expect(await grants(ours)).toBe(true);
    await until(async () => (await listOn(c!)).includes(await nameOf(b!)));
    expect(await grants(theirs)).toBe(false);
    toC.isOpen = false;
    toC.cut();
    await loseData(c!, f!);
    const key = randomUUID();
    expect((await acquire(ours, key)).kind).toBe('granted');
    await until(async () => (await listOn(c!)).length > 0); // It has replied to the other process.
    expect(await grants(theirs)).toBe(false);
    const result = await acquire(theirs, key);
    expect(result.kind).toBe('unknown');
    expect(reasonOf(result)).toContain(
      `${hostOf(d!)} has no vote, because ${hostOf(c!)} counts other servers`,
    );
    // The servers that it counted before still fit.
    toC.isOpen = true;
    await until(async () => (await listOn(c!)).includes(await nameOf(b!)));
    expect(await grants(ours)).toBe(true);
  });

  it('do not both get a lock if their common server is away and the others restart', async () => {
    const [a, b, c, d, e] = await serve(5);
    const [ours, theirs] = [open([a, b, c]), open([c, d, e])];
    expect(await grants(ours)).toBe(true);
    await until(async () => (await listOn(c!)).includes(await nameOf(b!)));
    expect(await grants(theirs)).toBe(false);
    await kill(c!);
    const key = randomUUID();
    expect((await acquire(ours, key)).kind).toBe('granted');
    for (const other of [d, e]) {
      await kill(other!);
      const again = await startAgain(other!, true);
      await until(async () => (await listOn(again)).includes(await nameOf(again)));
    }
    expect(await grants(theirs)).toBe(false);
    expect((await acquire(theirs, key)).kind).toBe('unknown');
  });

  it('do not both get a lock if they differ in the database of one server only', async () => {
    const [a, b, c] = await serve(3);
    // The fastest majority of each list has no lock in common with that of the other one.
    const ours = openClients([urlOf(a), urlOf(c), urlOf(b)]);
    expect(await grants(ours)).toBe(true);
    const theirs = openClients([urlOf(b), urlOf(c, '/1'), urlOf(a)]);
    await theirs.check!(LIMIT_MS); // From A and B, which are in both lists.
    const key = randomUUID();
    expect((await acquire(ours, key)).kind).toBe('granted');
    expect((await acquire(theirs, key)).kind).toBe('taken');
    await kill(a!);
    await until(() => grants(ours));
    const result = await acquire(theirs, randomUUID());
    expect(result.kind).toBe('unknown');
    expect(reasonOf(result)).toMatch(/has no vote, because \S+ counts other servers/);
  });

  it('of different sizes do not both get a lock', async () => {
    const [a, b, c, d, e] = await serve(5);
    const [three, five] = [open([a, b, c]), open([a, b, c, d, e])];
    const key = randomUUID();
    expect((await acquire(three, key)).kind).toBe('granted');
    const result = await acquire(five, key);
    expect(result.kind).toBe('unknown');
    expect(reasonOf(result)).toContain('counts 3 servers, this list has 5');
    expect(await grants(three)).toBe(true);
  });
});

describe('one list', () => {
  it('may have its servers in another order and under other addresses', async () => {
    const [a, b, c] = await serve(3);
    const address = await addressOf(c!);
    const [ours, theirs] = [open([a, b, c]), open([address, b, a])];
    const key = randomUUID();
    expect((await acquire(ours, key)).kind).toBe('granted');
    expect((await acquire(theirs, key)).kind).toBe('taken');
    await kill(b!);
    await until(() => grants(ours));
    await until(() => grants(theirs));
  });

  it('has a majority although one server is away from the start, and counts that server once it is there', async () => {
    const [a, b, c] = await serve(3);
    await kill(c!);
    const backend = open([a, b, c], SHORT);
    expect(await grants(backend)).toBe(true);
    await startAgain(c!);
    await kill(b!);
    await until(() => grants(backend));
  });

  it('counts an empty server that replaces another one at the same address', async () => {
    const [a, b, c] = await serve(3);
    const [running, other] = [open([a, b, c], SHORT), open([a, b, c], SHORT)];
    expect(await grants(running)).toBe(true);
    expect(await grants(other)).toBe(true);
    await kill(c!);
    await startAgain(c!);
    expect(await grants(open([a, b, c], SHORT))).toBe(true);
    await running.check!(LIMIT_MS);
    await kill(a!);
    await until(() => grants(running));
    await until(() => grants(other));
  });

  it('counts a server at once if a process saw it restart with its data', async () => {
    const [a, b, c] = await serve(3);
    const running = open([a, b, c]);
    expect(await grants(running)).toBe(true);
    await kill(c!);
    const again = await startAgain(c!, true);
    await kill(a!);
    await until(() => grants(running));
    await kill(again);
    await startAgain(c!, true);
    await until(() => grants(running));
  });

  it('counts a restarted server if another process saw that it kept its data', async () => {
    const [a, b, c] = await serve(3);
    const running = open([a, b, c], SHORT);
    expect(await grants(running)).toBe(true);
    await kill(c!);
    await startAgain(c!, true);
    await until(async () => (await listOn(a!)).includes(await nameOf(c!)));
    expect(await listOn(a!)).toHaveLength(4); // The three servers and the length of the list, without the run that has ended.
  });

  it('keeps its servers when one of them loses all data while it is up', async () => {
    const [a, b, c, d, e] = await serve(5);
    const ours = open([a, b, c], SHORT);
    expect(await grants(ours)).toBe(true);
    const admin = new Redis(c!.url);
    ends.push(() => admin.disconnect());
    const [before] = await admin.keys('*quorum:servers*');
    await admin.flushall();
    await until(async () => (await admin.keys('*quorum:servers*'))[0] === before);
    const result = await acquire(open([c, d, e], SHORT), randomUUID());
    expect(result.kind).toBe('unknown');
  });

  /** The process with the old list has closed. The one with the changed list was refused until then. */
  async function closedAfterChange() {
    const [a, b, c, d, e] = await serve(5);
    const old = open([a, b, c], SHORT);
    expect(await grants(old)).toBe(true);
    const changed = open([c, d, e], SHORT);
    expect(await grants(changed)).toBe(false);
    await old.close();
    return { a, b, c, changed };
  }

  it('may be changed when no process uses the old one any more', async () => {
    const { a, b, c, changed } = await closedAfterChange();
    await until(() => grants(changed));
    // Now the old list is refused.
    expect(await grants(open([a, b, c], SHORT))).toBe(false);
  });

  it('may be changed even if the server that remembered the old one restarted without its data', async () => {
    const { c, changed } = await closedAfterChange();
    await kill(c!);
    await startAgain(c!);
    await until(() => grants(changed));
  });

  it('may be changed one server at a time while processes run', async () => {
    const [a, b, c, d] = await serve(4);
    const old = open([a, b, c], SHORT);
    expect(await grants(old)).toBe(true);
    const changed = open([a, b, d], SHORT);
    const key = randomUUID();
    expect((await acquire(old, key)).kind).toBe('granted');
    expect((await acquire(changed, key)).kind).toBe('taken');
    await old.close();
    await kill(a!);
    await until(() => grants(changed));
  });
});
