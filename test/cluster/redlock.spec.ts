import { randomUUID } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, describe, expect, it } from 'vitest';
import { Redis } from 'ioredis';
import { redlockBackend } from '../../lib/backends/redis/index.js';
import { ServerCall } from '../../lib/backends/redis/quorum/server-call.js';
import type { AcquireRequest, LockBackend } from '../../lib/core/backend.js';
import type { AcquireResult } from '../../lib/core/backend-results.js';
import type { UnknownResult } from '../../lib/core/unknown-result.js';
import { PERSISTENT, startRedisQuorum } from '../services/redis-quorum.js';
import { startRedis } from '../services/redis-server.js';
import type { Service } from '../services/service.js';
import { voteFrom } from '../services/vote.js';
import { FaultProxy } from '../faults/injection/fault-proxy.js';
import { until } from '../support/until.js';

const LIMIT_MS = 5_000;
const NOT_PERSISTENT = ['--appendonly', 'no'];

const servers: Service[] = [];
const backends: LockBackend[] = [];
const admins: Redis[] = [];
afterEach(async () => {
  await Promise.all(backends.splice(0).map((backend) => backend.close()));
  for (const admin of admins.splice(0)) admin.disconnect();
  for (const server of servers.splice(0).reverse()) await server.stop();
});

async function quorum(count: number, args: readonly string[] = PERSISTENT): Promise<readonly Service[]> {
  const started = await startRedisQuorum(count, args);
  servers.push(...started);
  return started;
}

function open(on: readonly Service[], options: { maxLeaseMs?: number } = {}): LockBackend {
  const backend = redlockBackend({ clients: on.map(({ url }) => ({ url })), ...options });
  backends.push(backend);
  return backend;
}

function adminOf({ url }: Service): Redis {
  const admin = new Redis(url);
  admin.on('error', () => undefined);
  admins.push(admin);
  return admin;
}

async function kill(server: Service): Promise<void> {
  server.kill('SIGKILL');
  await server.exited;
}

async function startAgain(
  { port, dataDir }: Service,
  args: readonly string[] = PERSISTENT,
): Promise<Service> {
  const again = await startRedis({ port, dataDir, args });
  servers.push(again);
  return again;
}

async function freeze(server: Service): Promise<void> {
  server.kill('SIGSTOP');
  await until(() => readFileSync(`/proc/${server.pid}/status`, 'utf8').includes('T (stopped)'));
}

const requestFor = (key: string, leaseMs = 30_000): AcquireRequest => ({
  ...{ key, holder: randomUUID(), leaseMs, instance: 'a spec' },
});

async function acquire(backend: LockBackend, request: AcquireRequest): Promise<AcquireResult> {
  return (await backend.execute({ acquire: [request] }, LIMIT_MS)).acquire[0]!;
}

async function release(backend: LockBackend, { key, holder }: AcquireRequest): Promise<string> {
  return (await backend.execute({ release: [{ key, holder }] }, LIMIT_MS)).release[0]!.kind;
}

async function take(backend: LockBackend, request: AcquireRequest): Promise<bigint> {
  const result = await acquire(backend, request);
  if (result.kind !== 'granted') throw new Error(`expected a grant, got ${JSON.stringify(result)}`);
  return result.fencingToken;
}

const hostOf = ({ url }: Service) => new URL(url).host;

const reasonOf = (result: AcquireResult) => ((result as UnknownResult).cause as Error).message;

/** Blocks the whole process. */
const stall = (forMs: number) => Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, forMs);

/** The holder of one server's vote, unless it was released. */
async function voteOf(admin: Redis, key: string): Promise<string | undefined> {
  const lock = await admin.get(`{${key}}:vote`);
  return lock === null ? undefined : voteFrom(lock).holder;
}

/** Writes a vote for another holder, as one would that died before it had a majority, or that has one. */
async function vote(admin: Redis, key: string): Promise<void> {
  const [seconds, microseconds] = await admin.time();
  const us = Number(seconds) * 1e6 + Number(microseconds);
  const command = { leaseMs: 30_000, memoryMs: 60_000, retryWithinMs: 0, tokenCount: 1, instance: 'other' };
  const request = { key, holder: 'other', command };
  const call = new ServerCall([request], { us, firstUs: us, isRaised: false });
  const { replies } = await call.run(admin, {
    notAfterUs: Infinity,
    ballotToleranceUs: 1e9,
    channel: 'none',
  });
  expect(replies).toEqual(['granted']);
}

describe('on four servers', () => {
  it('an acquisition that cannot win a majority ends, and its votes are released', async () => {
    const on = await quorum(4);
    const backend = open(on);
    const each = on.map(adminOf);
    for (const [others, left] of [
      [each.slice(0, 2), each.slice(2)],
      [each.slice(2), each.slice(0, 2)],
    ]) {
      const key = randomUUID();
      for (const admin of others!) await vote(admin, key);
      expect((await acquire(backend, requestFor(key))).kind).toBe('taken');
      const votes = () => Promise.all(left!.map((admin) => voteOf(admin, key)));
      await until(async () => (await votes()).every((holder) => holder === undefined));
    }
  });

  it('two votes are no majority', async () => {
    const on = await quorum(4);
    const backend = open(on);
    await take(backend, requestFor(randomUUID()));
    for (const server of on.slice(2)) await freeze(server);
    expect((await acquire(backend, requestFor(randomUUID()))).kind).toBe('unknown');
  });

  it('if two acquisitions split the votes, exactly one is granted', async () => {
    const on = await quorum(4);
    const [ours, theirs] = [open(on), open(on)];
    for (let round = 0; round < 30; round += 1) {
      const requests = [requestFor(`key ${round}`), requestFor(`key ${round}`)];
      const results = await Promise.all([acquire(ours, requests[0]!), acquire(theirs, requests[1]!)]);
      expect(results.map(({ kind }) => kind).sort()).toEqual(['granted', 'taken']);
    }
  });
});

it('a server refuses a request that arrives too late', async () => {
  const on = await quorum(3);
  const backend = open(on);
  await take(backend, requestFor('warm'));
  const key = randomUUID();
  for (const server of on.slice(0, 2)) await freeze(server);
  const late = await acquire(backend, requestFor(key, 1_000));
  expect(late.kind).toBe('unknown');
  expect(reasonOf(late)).toMatch(
    `${hostOf(on[0]!)} did not reply in time; ${hostOf(on[1]!)} did not reply in time`,
  );
  // Their clocks are known except for a round trip, and a request within that time would not be too late.
  await sleep(100);
  for (const server of on) server.kill('SIGCONT');
  await until(async () => (await acquire(backend, requestFor(randomUUID()))).kind === 'granted');
  for (const admin of on.slice(0, 2).map(adminOf)) expect(await admin.exists(`{${key}}:vote`)).toBe(0);
  const next = await acquire(backend, requestFor(key));
  expect(next.kind).toBe('granted');
});

it('without a majority nothing is granted, and locks are granted again when it is back', async () => {
  const on = await quorum(5);
  const backend = open(on);
  const held = requestFor(randomUUID());
  await take(backend, held);
  for (const server of on.slice(0, 3)) await kill(server);
  const result = await acquire(backend, requestFor(randomUUID()));
  expect(result.kind).toBe('unknown');
  expect(reasonOf(result)).toMatch(
    `3 of 5 Redis servers must agree, but ${hostOf(on[0]!)} cannot be reached`,
  );
  for (const server of on.slice(0, 3)) await startAgain(server);
  await until(async () => (await acquire(backend, requestFor(randomUUID()))).kind === 'granted');
  expect((await acquire(backend, requestFor(held.key))).kind).toBe('taken');
  expect(await release(backend, held)).toBe('released');
});

it('a server that restarted and may have forgotten locks has no vote until their leases have ended', async () => {
  const on = await quorum(3, NOT_PERSISTENT);
  const [ours, theirs] = [open(on, { maxLeaseMs: 1_000 }), open(on, { maxLeaseMs: 1_000 })];
  expect(reasonOf(await acquire(ours, requestFor(randomUUID(), 1_000)))).toMatch(
    `${hostOf(on[0]!)} may have forgotten its locks`,
  );
  await until(async () => (await acquire(ours, requestFor(randomUUID(), 1_000))).kind === 'granted');
  await kill(on[2]!);
  const key = randomUUID();
  const many = { ...requestFor(key, 1_000), tokenCount: 200_000 };
  let before: AcquireResult | undefined;
  // On a busy machine, too little of a short lease may remain for a grant.
  await until(async () => (before = await acquire(ours, many)).kind === 'granted');
  await kill(on[1]!);
  for (const server of on.slice(1)) await startAgain(server, NOT_PERSISTENT);
  // Two servers are free for this key.
  expect((await acquire(theirs, requestFor(key, 1_000))).kind).toBe('unknown');
  let after: AcquireResult | undefined;
  await until(async () => (after = await acquire(theirs, requestFor(key, 1_000))).kind === 'granted');
  if (before?.kind !== 'granted' || after?.kind !== 'granted') throw new Error('Expected two grants.');
  expect(after.fencingToken).toBeGreaterThan(before.fencingToken);
}, 60_000);

/** Longer than the test, so that only a release can end the lease. */
const LONG_MS = 600_000;

it.each(['SIGSTOP', 'SIGKILL'] as const)(
  'a release reaches a server that was away by %s',
  async (signal) => {
    const on = await quorum(3);
    const backend = open(on, { maxLeaseMs: LONG_MS });
    const held = requestFor(randomUUID(), LONG_MS);
    await take(backend, held);
    const away = on[0]!;
    const admin = adminOf(away);
    await until(async () => (await voteOf(admin, held.key)) === held.holder);
    if (signal === 'SIGSTOP') await freeze(away);
    else await kill(away);
    expect(await release(backend, held)).toBe('released');
    await sleep(1_000); // In this time the release is retried in vain.
    if (signal === 'SIGSTOP') away.kill('SIGCONT');
    else await startAgain(away);
    await until(async () => (await voteOf(admin, held.key)) === undefined);
  },
  60_000,
);

it('a lock that is renewed survives the loss of its data on one server after the other', async () => {
  const on = await quorum(3);
  const backend = open(on);
  const held = requestFor(randomUUID());
  const fencingToken = await take(backend, held);
  for (const admin of on.map(adminOf)) {
    await until(async () => (await voteOf(admin, held.key)) === held.holder);
    await admin.flushall();
    await until(async () => {
      const { renew } = await backend.execute({ renew: [held] }, LIMIT_MS);
      expect(renew[0]!.kind).not.toBe('lost');
      return (await voteOf(admin, held.key)) === held.holder;
    });
  }
  expect(await backend.inspect(held.key, LIMIT_MS)).toMatchObject({ holder: held.holder, fencingToken });
});

it('a tick is claimed once, however many processes claim it at once', async () => {
  const on = await quorum(5);
  const each = Array.from({ length: 5 }, () => open(on));
  const firstMs = Date.now();
  for (let round = 0; round < 20; round += 1) {
    const tick = { tickMs: firstMs + round, maxEarlyMs: 60_000, staleAfterMs: 60_000 };
    const requests = each.map(() => ({ ...requestFor('job'), tick }));
    const results = await Promise.all(each.map((backend, index) => acquire(backend, requests[index]!)));
    const winner = results.findIndex(({ kind }) => kind === 'granted');
    const outcomes = results
      .map((result) => (result.kind === 'refused' ? result.reason : result.kind))
      .sort();
    expect(outcomes).toEqual(['claimed', 'claimed', 'claimed', 'claimed', 'granted']);
    expect(await release(each[winner]!, requests[winner]!)).toBe('released');
  }
}, 60_000);

it('a process that dies while it registers a job does not keep another one from the first tick', async () => {
  const on = await quorum(3);
  const proxies = await Promise.all(on.map(({ port }) => FaultProxy.to(port)));
  try {
    const urls = proxies.map(({ port }) => ({ url: `redis://127.0.0.1:${port}` }));
    const dying = redlockBackend({ clients: urls });
    backends.push(dying);
    const ours = open(on);
    await Promise.all([dying, ours].map((backend) => backend.check!(LIMIT_MS)));
    for (const proxy of proxies)
      proxy.setConditions({ holdsFrom: (bytes) => /mark \d/.test(bytes.toString()) });
    const dead = dying.registerTicks('job', LIMIT_MS).catch(() => undefined);
    const admins = on.map((server) => adminOf(server));
    // A majority, because the third connection may still be opening when the registration begins.
    await until(
      async () =>
        (await Promise.all(admins.map((admin) => voteOf(admin, 'job')))).filter(Boolean).length >= 2,
    );
    for (const proxy of proxies) proxy.setConditions({ up: 'drop', refuses: true });
    for (const proxy of proxies) proxy.resetAll();
    const tick = { tickMs: Date.now(), maxEarlyMs: 500, staleAfterMs: 60_000 };
    expect(await acquire(ours, { ...requestFor('job'), tick })).toMatchObject({
      kind: 'granted',
      attempt: 1,
    });
    await dead;
  } finally {
    await Promise.all(proxies.map((proxy) => proxy.close()));
  }
}, 30_000);

describe('of five servers, a bare majority is contacted first,', () => {
  it('and a lock that is released at once never reaches the others', async () => {
    const on = await quorum(5);
    const others = on.slice(3).map(adminOf);
    const backend = open(on);
    await take(backend, requestFor('warm'));
    // If a server is slow for a moment, the others are contacted too, so this is repeated.
    let short = requestFor(randomUUID());
    await until(async () => {
      short = requestFor(randomUUID());
      await take(backend, short);
      expect(await release(backend, short)).toBe('released');
      return (await Promise.all(others.map((admin) => admin.exists(`{${short.key}}:vote`)))).every(
        (n) => n === 0,
      );
    });
    const long = requestFor(randomUUID());
    await take(backend, long);
    for (const admin of others) await until(async () => (await voteOf(admin, long.key)) === long.holder);
    for (const admin of others) expect(await admin.exists(`{${short.key}}:vote`)).toBe(0);
  });

  it('and a lock that is held survives the loss of any two servers', async () => {
    const on = await quorum(5);
    const each = on.map(adminOf);
    const backend = open(on);
    const held = requestFor(randomUUID());
    const fencingToken = await take(backend, held);
    for (const admin of each) await until(async () => (await voteOf(admin, held.key)) === held.holder);
    await kill(on[0]!);
    await kill(on[1]!);
    const renewal = { ...held, leaseMs: 40_000 };
    const { renew } = await backend.execute({ renew: [renewal] }, LIMIT_MS);
    expect(renew).toEqual([{ kind: 'renewed' }]);
    expect((await backend.inspect(held.key, LIMIT_MS))?.fencingToken).toBe(fencingToken);
    expect(await release(backend, held)).toBe('released');
    expect(await take(backend, requestFor(held.key))).toBeGreaterThan(fencingToken);
  });

  it('and if one of them is frozen, the others take its place', async () => {
    const on = await quorum(5);
    const backend = open(on);
    await take(backend, requestFor('warm'));
    await freeze(on[1]!);
    const held = requestFor(randomUUID());
    const fencingToken = await take(backend, held);
    expect(await release(backend, held)).toBe('released');
    expect(await take(backend, requestFor(held.key))).toBeGreaterThan(fencingToken);
  });

  it('and a server that replies only after the release does not keep the lock', async () => {
    const on = await quorum(5);
    const backend = open(on);
    await take(backend, requestFor('warm'));
    const frozen = on[1]!;
    await freeze(frozen);
    const held = requestFor(randomUUID());
    await take(backend, held);
    expect(await release(backend, held)).toBe('released');
    frozen.kill('SIGCONT');
    const admin = adminOf(frozen);
    await until(async () => (await voteOf(admin, held.key)) === undefined);
  });

  it('and a lock that is renewed and released at once leaves nothing on the others', async () => {
    const on = await quorum(5);
    const others = on.slice(3).map(adminOf);
    const backend = open(on);
    await take(backend, requestFor('warm'));
    for (let round = 0; round < 10; round += 1) {
      const short = requestFor(randomUUID());
      await take(backend, short);
      await backend.execute({ renew: [short] }, LIMIT_MS);
      await backend.inspect(short.key, LIMIT_MS);
      expect(await release(backend, short)).toBe('released');
      const long = requestFor(randomUUID());
      await take(backend, long);
      for (const admin of others) await until(async () => (await voteOf(admin, long.key)) === long.holder);
      for (const admin of others) expect(await voteOf(admin, short.key)).toBeUndefined();
    }
  });

  it('and the release of a lock that expired while its process was blocked is `gone`', async () => {
    const on = await quorum(5);
    const backend = open(on);
    await take(backend, requestFor('warm'));
    const leaseMs = 200;
    const lapsed = requestFor(randomUUID(), leaseMs);
    await take(backend, lapsed);
    // Blocks the process, so that none of its timers fires.
    for (const endMs = performance.now() + 2 * leaseMs; performance.now() < endMs;);
    expect(await release(backend, lapsed)).toBe('gone');
  });
});

it('replies that arrived while the process was blocked count', async () => {
  const on = await quorum(3);
  await kill(on[0]!);
  const backend = open(on);
  const first = requestFor(randomUUID());
  await take(backend, first);
  const [request, { key, holder }] = [requestFor(randomUUID()), first];
  const results = backend.execute({ acquire: [request], release: [{ key, holder }] }, LIMIT_MS);
  stall(1_000);
  const { acquire, release } = await results;
  expect(release).toEqual([{ kind: 'released' }]);
  expect(acquire).toMatchObject([{ kind: 'granted' }]);
});

it('a server whose memory has run out still releases a lock', async () => {
  const admin = adminOf((await quorum(1))[0]!);
  const key = randomUUID();
  await vote(admin, key);
  await admin.config('SET', 'maxmemory', 1);
  const call = new ServerCall([{ key, holder: 'other', command: 'release sure' }]);
  const { replies } = await call.run(admin, {
    notAfterUs: Infinity,
    ballotToleranceUs: 1e9,
    channel: 'none',
  });
  expect(replies).toEqual(['released']);
  expect(await voteOf(admin, key)).toBeUndefined();
});
