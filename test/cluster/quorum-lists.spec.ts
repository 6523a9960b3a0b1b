import { randomUUID } from 'node:crypto';
import { cp, mkdtemp, rm } from 'node:fs/promises';
import { afterEach, describe, expect, it, jest } from '@jest/globals';
import { Redis } from 'ioredis';
import { redlockBackend } from '../../lib/backends/redis/index.js';
import type { AcquireResult, LockBackend, UnknownResult } from '../../lib/core/backend.js';
import { QuorumServer } from '../../lib/backends/redis/quorum/servers/quorum-server.js';
import { momentOf, systemClock } from '../../lib/core/clock.js';
import { LockUnavailableError } from '../../lib/core/errors.js';
import { bareLocks } from '../support/bare-locks.js';
import { askRedis } from '../services/ask-redis.js';
import { PERSISTENT, startOldRedis, startRedisQuorum } from '../services/redis-quorum.js';
import { startRedis } from '../services/redis-server.js';
import type { Service } from '../services/service.js';
import { type SlowProxy, slowProxy } from '../faults/injection/slow-proxy.js';
import { until } from '../support/until.js';

/** Processes whose lists of servers differ: no two of them may have majorities without a server in common. */

const LIMIT_MS = 5_000;
/** The shortest there is, so that what a server remembers of a list is soon over. */
const SHORT = { maxLeaseMs: 1_000 };

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

interface Address {
  readonly port: number;
}

function open(on: readonly (Address | undefined)[], options: { maxLeaseMs?: number } = {}): LockBackend {
  const clients = on.map((at) => ({ url: `redis://127.0.0.1:${at!.port}` }));
  const backend = redlockBackend({ clients, ...options });
  ends.push(() => backend.close());
  return backend;
}

async function ask(backend: LockBackend, key: string, leaseMs = 1_000): Promise<AcquireResult> {
  const request = { key, holder: randomUUID(), leaseMs, instance: 'a spec' };
  return (await backend.execute({ acquire: [request] }, LIMIT_MS)).acquire[0]!;
}

const grants = async (backend: LockBackend) => (await ask(backend, randomUUID())).kind === 'granted';

const reasonOf = (answer: AcquireResult) => ((answer as UnknownResult).cause as Error).message;

/** As a machine does: its monotonic clock stands still meanwhile. */
function sleepFor(ms: number): void {
  const wallMs = systemClock.wallMs;
  const sleep = jest.spyOn(systemClock, 'wallMs').mockImplementation(() => wallMs() + ms);
  ends.push(() => sleep.mockRestore());
}

async function addressOf({ port }: Service): Promise<SlowProxy> {
  const proxy = await slowProxy(port);
  ends.push(() => proxy.close());
  return proxy;
}

const noted = ({ url }: Service) =>
  askRedis(url, async (admin) => {
    const [key] = await admin.keys('*quorum:servers*');
    return key === undefined ? ([] as string[]) : admin.zrange(key, 0, -1);
  });

const runIdOf = ({ url }: Service) =>
  askRedis(url, async (admin) => /run_id:(\w+)/.exec(await admin.info('server'))![1]!);

const placeOf = ({ port }: Address) => `127.0.0.1:${port}`;

it('a lock is granted also if servers take longer to note the list than one may take for a short lease', async () => {
  const servers = await serve(3);
  for (const { url } of servers)
    await askRedis(url, (admin) => admin.call('CLIENT', 'PAUSE', '400', 'WRITE'));
  expect((await ask(open(servers), randomUUID())).kind).toBe('granted');
});

describe('a server that other servers have confirmed', () => {
  async function confirmed(untilMs: number): Promise<QuorumServer> {
    const [{ port }] = (await serve(1)) as [Service];
    const server = new QuorumServer({
      ...{ index: 0, source: { url: `redis://127.0.0.1:${port}` }, maxLeaseMs: 1_000, quarantineMs: 0 },
      ...{ ballotToleranceUs: 1_000, channel: 'a spec' },
      ...{ onHandshakeChange: () => undefined, onStatusChange: () => undefined },
    });
    ends.push(() => server.close());
    await server.open();
    server.confirmVote(untilMs, momentOf(systemClock));
    return server;
  }

  it('has no vote after the machine of this process has slept', async () => {
    const server = await confirmed(Infinity);
    expect(server.hasVote).toBe(true);
    sleepFor(100_000);
    expect(server.hasVote).toBe(false);
  });

  it('has no vote after its confirmation is over, or taken back', async () => {
    expect((await confirmed(systemClock.monotonicMs())).hasVote).toBe(false);
    const server = await confirmed(Infinity);
    server.revokeVote('another server counts in its place');
    expect(server.hasVote).toBe(false);
  });
});

describe('two processes with different lists', () => {
  it('that share one server of three do not both get a lock', async () => {
    const [a, b, c, d, e] = await serve(5);
    const [ours, theirs] = [open([a, b, c]), open([c, d, e])];
    const key = randomUUID();
    expect((await ask(ours, key)).kind).toBe('granted');
    const answer = await ask(theirs, key);
    expect(answer.kind).toBe('unknown');
    const refusal = `has no vote, as ${placeOf(c!)} counts other servers`;
    expect(reasonOf(answer)).toContain(`${placeOf(d!)} ${refusal}`);
    expect(reasonOf(answer)).toContain(`${placeOf(e!)} ${refusal}`);
    expect(await grants(ours)).toBe(true);
  });

  it('is said to the caller with what to do', async () => {
    const [a, b, c, d, e] = await serve(5);
    expect(await grants(open([a, b, c]))).toBe(true);
    const locks = bareLocks({ backend: open([c, d, e]), namespace: 'lock' });
    ends.push(() => locks.close());
    const error = await locks.acquire('key').catch((cause: unknown) => cause as Error);
    expect(error).toBeInstanceOf(LockUnavailableError);
    expect((error as Error).message).toContain('give all processes the same list');
  });

  it('that share two of three do not both get a lock, also if each misses another server', async () => {
    const [a, b, c, d] = await serve(4);
    const [toA, toB] = [await addressOf(a!), await addressOf(b!)];
    const [ours, theirs] = [open([toA, b, c]), open([a, toB, d])];
    expect(await grants(ours)).toBe(true);
    expect(await grants(theirs)).toBe(true); // By A and B, which both lists have.
    for (const address of [toA, toB]) {
      address.isOpen = false;
      address.cut();
    }
    const key = randomUUID();
    expect((await ask(ours, key)).kind).toBe('granted');
    const answer = await ask(theirs, key);
    expect(answer.kind).toBe('unknown');
    expect(reasonOf(answer)).toContain(`${placeOf(d!)} has no vote, as `);
  });

  it('do not both get a lock where both begin at the same time', async () => {
    const [a, b, c, d, e] = await serve(5);
    const [ours, theirs] = [open([a, b, c]), open([c, d, e])];
    const key = randomUUID();
    const answers = await Promise.all([ask(ours, key), ask(theirs, key)]);
    expect(answers.map(({ kind }) => kind).sort()).toEqual(['granted', 'unknown']);
  });

  it('of which one has a copy of a server do not both get a lock', async () => {
    const [a, b, c] = await serve(3);
    const ours = open([c, a, b]);
    expect(await grants(ours)).toBe(true);
    const copy = await startCopy(c!);
    const theirs = open([copy, b, a]);
    await theirs.check!(LIMIT_MS); // By A and B, which both lists have.
    await kill(b!);
    await until(() => grants(ours));
    const key = randomUUID();
    expect((await ask(ours, key)).kind).toBe('granted');
    const answer = await ask(theirs, key);
    expect(answer.kind).toBe('unknown');
    expect(reasonOf(answer)).toContain(`${placeOf(copy)} has no vote, as `);
  });

  it('of which one slept for longer than servers remember do not both get a lock', async () => {
    const [a, b, c, d, e] = await serve(5);
    const ours = open([a, b, c]);
    expect(await grants(ours)).toBe(true);
    // As time does that only the servers see.
    for (const { url } of [a!, b!, c!]) await askRedis(url, (admin) => admin.flushall());
    expect(await grants(open([c, d, e]))).toBe(true);
    sleepFor(100_000);
    const answer = await ask(ours, randomUUID());
    expect(answer.kind).toBe('unknown');
    expect(reasonOf(answer)).toContain(`has no vote, as ${placeOf(c!)} counts other servers`);
  });

  it('do not both get a lock where the one server that both have restarts without its data', async () => {
    const [a, b, c, d, e] = await serve(5);
    const toC = await addressOf(c!);
    const [ours, theirs] = [open([a, b, toC]), open([c, d, e])];
    expect(await grants(ours)).toBe(true);
    expect(await grants(theirs)).toBe(false);
    toC.isOpen = false;
    toC.cut();
    await kill(c!);
    await startAgain(c!);
    const key = randomUUID();
    expect((await ask(ours, key)).kind).toBe('granted');
    await until(async () => (await noted(c!)).length > 0); // It has answered the other process.
    expect(await grants(theirs)).toBe(false);
    const answer = await ask(theirs, key);
    expect(answer.kind).toBe('unknown');
    expect(reasonOf(answer)).toContain(`${placeOf(d!)} has no vote, as ${placeOf(c!)} counts other servers`);
    // And there is room for the servers that it counted before.
    toC.isOpen = true;
    await until(async () => (await noted(c!)).includes(await runIdOf(b!)));
    expect(await grants(ours)).toBe(true);
  });

  it('do not both get a lock where the one server that both have is away, and the others restart', async () => {
    const [a, b, c, d, e] = await serve(5);
    const [ours, theirs] = [open([a, b, c]), open([c, d, e])];
    expect(await grants(ours)).toBe(true);
    expect(await grants(theirs)).toBe(false);
    await kill(c!);
    const key = randomUUID();
    expect((await ask(ours, key)).kind).toBe('granted');
    for (const other of [d, e]) {
      await kill(other!);
      const again = await startAgain(other!, true);
      await until(async () => (await noted(again)).includes(await runIdOf(again)));
    }
    expect(await grants(theirs)).toBe(false);
    expect((await ask(theirs, key)).kind).toBe('unknown');
  });

  it('of different sizes do not both get a lock', async () => {
    const [a, b, c, d, e] = await serve(5);
    const [three, five] = [open([a, b, c]), open([a, b, c, d, e])];
    const key = randomUUID();
    expect((await ask(three, key)).kind).toBe('granted');
    const answer = await ask(five, key);
    expect(answer.kind).toBe('unknown');
    expect(reasonOf(answer)).toContain('counts 3 servers, this list has 5');
    expect(await grants(three)).toBe(true);
  });
});

describe('one list', () => {
  it('may name its servers in another order and by other addresses', async () => {
    const [a, b, c] = await serve(3);
    const address = await addressOf(c!);
    const [ours, theirs] = [open([a, b, c]), open([address, b, a])];
    const key = randomUUID();
    expect((await ask(ours, key)).kind).toBe('granted');
    expect((await ask(theirs, key)).kind).toBe('taken');
    await kill(b!);
    await until(() => grants(ours));
    await until(() => grants(theirs));
  });

  it('has a majority where one server is away from the start, which counts once it is there', async () => {
    const [a, b, c] = await serve(3);
    await kill(c!);
    const backend = open([a, b, c], SHORT);
    expect(await grants(backend)).toBe(true);
    await startAgain(c!);
    await kill(b!);
    await until(() => grants(backend));
  });

  it('counts a server again that was replaced by an empty one at the same address', async () => {
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

  it('counts a server at once that restarted with its data while a process saw it', async () => {
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

  it('counts a server of which another process says that it went on', async () => {
    const [a, b, c] = await serve(3);
    const running = open([a, b, c], SHORT);
    expect(await grants(running)).toBe(true);
    await kill(c!);
    await startAgain(c!, true);
    await until(async () => (await noted(a!)).includes(await runIdOf(c!)));
    expect(await noted(a!)).toHaveLength(4); // With how many there are, and without the run that has ended.
  });

  it('keeps its servers when one of them forgets all while it is on', async () => {
    const [a, b, c, d, e] = await serve(5);
    const ours = open([a, b, c], SHORT);
    expect(await grants(ours)).toBe(true);
    const admin = new Redis(c!.url);
    ends.push(() => admin.disconnect());
    const [before] = await admin.keys('*quorum:servers*');
    await admin.flushall();
    await until(async () => (await admin.keys('*quorum:servers*'))[0] === before);
    const answer = await ask(open([c, d, e], SHORT), randomUUID());
    expect(answer.kind).toBe('unknown');
  });

  it('may be changed when no process has the old one any more', async () => {
    const [a, b, c, d, e] = await serve(5);
    const old = open([a, b, c], SHORT);
    expect(await grants(old)).toBe(true);
    const changed = open([c, d, e], SHORT);
    expect(await grants(changed)).toBe(false);
    await old.close();
    await until(() => grants(changed));
    // And the old one comes too late now.
    expect(await grants(open([a, b, c], SHORT))).toBe(false);
  });

  it('may be changed also if the server that remembered the old one restarted without its data', async () => {
    const [a, b, c, d, e] = await serve(5);
    const old = open([a, b, c], SHORT);
    expect(await grants(old)).toBe(true);
    const changed = open([c, d, e], SHORT);
    expect(await grants(changed)).toBe(false);
    await old.close();
    await kill(c!);
    await startAgain(c!);
    await until(() => grants(changed));
  });

  it('may be changed by one server after the other while processes run', async () => {
    const [a, b, c, d] = await serve(4);
    const old = open([a, b, c], SHORT);
    expect(await grants(old)).toBe(true);
    const changed = open([a, b, d], SHORT);
    const key = randomUUID();
    expect((await ask(old, key)).kind).toBe('granted');
    expect((await ask(changed, key)).kind).toBe('taken');
    await old.close();
    await kill(a!);
    await until(() => grants(changed));
  });
});
