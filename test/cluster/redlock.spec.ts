import { randomUUID } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, describe, expect, it } from '@jest/globals';
import { Redis } from 'ioredis';
import { redlockBackend } from '../../lib/backends/redis/index.js';
import { ServerCall } from '../../lib/backends/redis/quorum/server-call.js';
import type { AcquireResult, AcquireRequest, LockBackend, UnknownResult } from '../../lib/core/backend.js';
import { PERSISTENT, startRedisQuorum } from '../services/redis-quorum.js';
import { startRedis } from '../services/redis-server.js';
import type { Service } from '../services/service.js';
import { voteFrom } from '../services/vote.js';
import { until } from '../support/until.js';

const LIMIT_MS = 5_000;
const FORGETFUL = ['--appendonly', 'no'];

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

const wish = (key: string, leaseMs = 30_000): AcquireRequest => ({
  ...{ key, holder: randomUUID(), leaseMs, instance: 'a spec' },
});

async function ask(backend: LockBackend, request: AcquireRequest): Promise<AcquireResult> {
  return (await backend.execute({ acquire: [request] }, LIMIT_MS)).acquire[0]!;
}

async function giveBack(backend: LockBackend, { key, holder }: AcquireRequest): Promise<string> {
  return (await backend.execute({ release: [{ key, holder }] }, LIMIT_MS)).release[0]!.kind;
}

async function take(backend: LockBackend, request: AcquireRequest): Promise<bigint> {
  const answer = await ask(backend, request);
  if (answer.kind !== 'granted') throw new Error(`expected a grant, got ${JSON.stringify(answer)}`);
  return answer.fencingToken;
}

const placeOf = ({ url }: Service) => new URL(url).host;

const reasonOf = (answer: AcquireResult) => ((answer as UnknownResult).cause as Error).message;

/** Nothing of this process goes on meanwhile. */
const stall = (forMs: number) => Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, forMs);

/** Who holds the vote of one server, as far as its lease has not been given back. */
async function voteOf(admin: Redis, key: string): Promise<string | undefined> {
  const lock = await admin.get(`{${key}}:vote`);
  return lock === null ? undefined : voteFrom(lock).holder;
}

/** A vote for somebody who died before he had a majority, or who has one. */
async function vote(admin: Redis, key: string): Promise<void> {
  const [seconds, microseconds] = await admin.time();
  const us = Number(seconds) * 1e6 + Number(microseconds);
  const command = { leaseMs: 30_000, memoryMs: 60_000, retryWithinMs: 0, tokenCount: 1, instance: 'other' };
  const request = { key, holder: 'other', command };
  const call = new ServerCall([request], { us, firstUs: us, isRaised: false });
  const { replies: answers } = await call.run(admin, {
    notAfterUs: Infinity,
    ballotToleranceUs: 1e9,
    channel: 'none',
  });
  expect(answers).toEqual(['granted']);
}

describe('on four servers', () => {
  it('a vote that cannot be won is settled, and what was won of it is given back', async () => {
    const on = await quorum(4);
    const backend = open(on);
    const each = on.map(adminOf);
    for (const [others, left] of [
      [each.slice(0, 2), each.slice(2)],
      [each.slice(2), each.slice(0, 2)],
    ]) {
      const key = randomUUID();
      for (const admin of others!) await vote(admin, key);
      expect((await ask(backend, wish(key))).kind).toBe('taken');
      const votes = () => Promise.all(left!.map((admin) => voteOf(admin, key)));
      await until(async () => (await votes()).every((holder) => holder === undefined));
    }
  });

  it('two votes are no majority', async () => {
    const on = await quorum(4);
    const backend = open(on);
    await take(backend, wish(randomUUID()));
    for (const server of on.slice(2)) await freeze(server);
    expect((await ask(backend, wish(randomUUID()))).kind).toBe('unknown');
  });

  it('of two who divide the votes one is granted, each time', async () => {
    const on = await quorum(4);
    const [ours, theirs] = [open(on), open(on)];
    for (let round = 0; round < 30; round += 1) {
      const wishes = [wish(`key ${round}`), wish(`key ${round}`)];
      const answers = await Promise.all([ask(ours, wishes[0]!), ask(theirs, wishes[1]!)]);
      expect(answers.map(({ kind }) => kind).sort()).toEqual(['granted', 'taken']);
    }
  });
});

it('a server that gets a request when its time is over refuses it', async () => {
  const on = await quorum(3);
  const backend = open(on);
  await take(backend, wish('warm'));
  const key = randomUUID();
  for (const server of on.slice(0, 2)) await freeze(server);
  const late = await ask(backend, wish(key, 1_000));
  expect(late.kind).toBe('unknown');
  expect(reasonOf(late)).toMatch(
    `${placeOf(on[0]!)} did not answer in time; ${placeOf(on[1]!)} did not answer in time`,
  );
  // We know their clocks but for a round trip, and a request within that would be in time.
  await sleep(100);
  for (const server of on) server.kill('SIGCONT');
  await until(async () => (await ask(backend, wish(randomUUID()))).kind === 'granted');
  for (const admin of on.slice(0, 2).map(adminOf)) expect(await admin.exists(`{${key}}:vote`)).toBe(0);
  const next = await ask(backend, wish(key));
  expect(next.kind).toBe('granted');
});

it('with a majority gone nobody is granted anything, and it goes on when it is back', async () => {
  const on = await quorum(5);
  const backend = open(on);
  const held = wish(randomUUID());
  await take(backend, held);
  for (const server of on.slice(0, 3)) await kill(server);
  const answer = await ask(backend, wish(randomUUID()));
  expect(answer.kind).toBe('unknown');
  expect(reasonOf(answer)).toMatch(
    `of 5 Redis servers 3 must agree, but ${placeOf(on[0]!)} cannot be reached`,
  );
  for (const server of on.slice(0, 3)) await startAgain(server);
  await until(async () => (await ask(backend, wish(randomUUID()))).kind === 'granted');
  expect((await ask(backend, wish(held.key))).kind).toBe('taken');
  expect(await giveBack(backend, held)).toBe('released');
});

it('a server that restarted and may have forgotten has no vote until all leases are over', async () => {
  const on = await quorum(3, FORGETFUL);
  const [ours, theirs] = [open(on, { maxLeaseMs: 1_000 }), open(on, { maxLeaseMs: 1_000 })];
  expect(reasonOf(await ask(ours, wish(randomUUID(), 1_000)))).toMatch(
    `${placeOf(on[0]!)} may have forgotten its locks`,
  );
  await until(async () => (await ask(ours, wish(randomUUID(), 1_000))).kind === 'granted');
  await kill(on[2]!);
  const key = randomUUID();
  const many = { ...wish(key, 1_000), tokenCount: 200_000 };
  let before: AcquireResult | undefined;
  // On a busy machine too little of a short lease may be left.
  await until(async () => (before = await ask(ours, many)).kind === 'granted');
  await kill(on[1]!);
  for (const server of on.slice(1)) await startAgain(server, FORGETFUL);
  // Two servers are free for this key.
  expect((await ask(theirs, wish(key, 1_000))).kind).toBe('unknown');
  let after: AcquireResult | undefined;
  await until(async () => (after = await ask(theirs, wish(key, 1_000))).kind === 'granted');
  if (before?.kind !== 'granted' || after?.kind !== 'granted') throw new Error('Expected two grants.');
  expect(after.fencingToken).toBeGreaterThan(before.fencingToken);
}, 60_000);

/** No lease lapses while anybody waits for it to be given back. */
const LONG_MS = 600_000;

it.each(['SIGSTOP', 'SIGKILL'] as const)(
  'a release reaches a server that was away by %s',
  async (signal) => {
    const on = await quorum(3);
    const backend = open(on, { maxLeaseMs: LONG_MS });
    const held = wish(randomUUID(), LONG_MS);
    await take(backend, held);
    const away = on[0]!;
    const admin = adminOf(away);
    await until(async () => (await voteOf(admin, held.key)) === held.holder);
    if (signal === 'SIGSTOP') await freeze(away);
    else await kill(away);
    expect(await giveBack(backend, held)).toBe('released');
    await sleep(1_000); // Meanwhile it is tried in vain.
    if (signal === 'SIGSTOP') away.kill('SIGCONT');
    else await startAgain(away);
    await until(async () => (await voteOf(admin, held.key)) === undefined);
  },
  60_000,
);

it('a lock that is renewed outlives that one server after the other forgets it', async () => {
  const on = await quorum(3);
  const backend = open(on);
  const held = wish(randomUUID());
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

it('a tick is claimed once, by however many at once', async () => {
  const on = await quorum(5);
  const each = Array.from({ length: 5 }, () => open(on));
  const firstMs = Date.now();
  for (let round = 0; round < 20; round += 1) {
    const tick = { tickMs: firstMs + round, maxEarlyMs: 60_000, staleAfterMs: 60_000 };
    const wishes = each.map(() => ({ ...wish('job'), tick }));
    const answers = await Promise.all(each.map((backend, index) => ask(backend, wishes[index]!)));
    const winner = answers.findIndex(({ kind }) => kind === 'granted');
    const outcomes = answers
      .map((answer) => (answer.kind === 'refused' ? answer.reason : answer.kind))
      .sort();
    expect(outcomes).toEqual(['claimed', 'claimed', 'claimed', 'claimed', 'granted']);
    expect(await giveBack(each[winner]!, wishes[winner]!)).toBe('released');
  }
}, 60_000);

describe('of five servers a bare majority is asked first', () => {
  it('and the others know nothing of a lock that is given back at once', async () => {
    const on = await quorum(5);
    const others = on.slice(3).map(adminOf);
    const backend = open(on);
    await take(backend, wish('warm'));
    // A server that is slow for a moment has the others asked, too.
    let short = wish(randomUUID());
    await until(async () => {
      short = wish(randomUUID());
      await take(backend, short);
      expect(await giveBack(backend, short)).toBe('released');
      return (await Promise.all(others.map((admin) => admin.exists(`{${short.key}}:vote`)))).every(
        (n) => n === 0,
      );
    });
    const long = wish(randomUUID());
    await take(backend, long);
    for (const admin of others) await until(async () => (await voteOf(admin, long.key)) === long.holder);
    for (const admin of others) expect(await admin.exists(`{${short.key}}:vote`)).toBe(0);
  });

  it('and a lock that is held outlives any two of them', async () => {
    const on = await quorum(5);
    const each = on.map(adminOf);
    const backend = open(on);
    const held = wish(randomUUID());
    const fencingToken = await take(backend, held);
    for (const admin of each) await until(async () => (await voteOf(admin, held.key)) === held.holder);
    await kill(on[0]!);
    await kill(on[1]!);
    const renewal = { ...held, leaseMs: 40_000 };
    const { renew } = await backend.execute({ renew: [renewal] }, LIMIT_MS);
    expect(renew).toEqual([{ kind: 'renewed' }]);
    expect((await backend.inspect(held.key, LIMIT_MS))?.fencingToken).toBe(fencingToken);
    expect(await giveBack(backend, held)).toBe('released');
    expect(await take(backend, wish(held.key))).toBeGreaterThan(fencingToken);
  });

  it('and where one of them is frozen, the others take its place', async () => {
    const on = await quorum(5);
    const backend = open(on);
    await take(backend, wish('warm'));
    await freeze(on[1]!);
    const held = wish(randomUUID());
    const fencingToken = await take(backend, held);
    expect(await giveBack(backend, held)).toBe('released');
    expect(await take(backend, wish(held.key))).toBeGreaterThan(fencingToken);
  });

  it('and one that answers only after the lock was given back does not keep it', async () => {
    const on = await quorum(5);
    const backend = open(on);
    await take(backend, wish('warm'));
    const frozen = on[1]!;
    await freeze(frozen);
    const held = wish(randomUUID());
    await take(backend, held);
    expect(await giveBack(backend, held)).toBe('released');
    frozen.kill('SIGCONT');
    const admin = adminOf(frozen);
    await until(async () => (await voteOf(admin, held.key)) === undefined);
  });

  it('and the others keep nothing of one that was renewed and given back at once', async () => {
    const on = await quorum(5);
    const others = on.slice(3).map(adminOf);
    const backend = open(on);
    await take(backend, wish('warm'));
    for (let round = 0; round < 10; round += 1) {
      const short = wish(randomUUID());
      await take(backend, short);
      await backend.execute({ renew: [short] }, LIMIT_MS);
      await backend.inspect(short.key, LIMIT_MS);
      expect(await giveBack(backend, short)).toBe('released');
      const long = wish(randomUUID());
      await take(backend, long);
      for (const admin of others) await until(async () => (await voteOf(admin, long.key)) === long.holder);
      for (const admin of others) expect(await voteOf(admin, short.key)).toBeUndefined();
    }
  });

  it('and one that lapsed while its process stood still was not held to the end', async () => {
    const on = await quorum(5);
    const backend = open(on);
    await take(backend, wish('warm'));
    const leaseMs = 200;
    const lapsed = wish(randomUUID(), leaseMs);
    await take(backend, lapsed);
    // No timer of this process fires meanwhile.
    for (const endMs = performance.now() + 2 * leaseMs; performance.now() < endMs;);
    expect(await giveBack(backend, lapsed)).toBe('gone');
  });
});

it('what arrived while the process was kept from everything counts', async () => {
  const on = await quorum(3);
  await kill(on[0]!);
  const backend = open(on);
  const first = wish(randomUUID());
  await take(backend, first);
  const [request, { key, holder }] = [wish(randomUUID()), first];
  const answers = backend.execute({ acquire: [request], release: [{ key, holder }] }, LIMIT_MS);
  stall(1_000);
  const { acquire, release } = await answers;
  expect(release).toEqual([{ kind: 'released' }]);
  expect(acquire).toMatchObject([{ kind: 'granted' }]);
});

it('a server whose memory has run out takes a lock back all the same', async () => {
  const admin = adminOf((await quorum(1))[0]!);
  const key = randomUUID();
  await vote(admin, key);
  await admin.config('SET', 'maxmemory', 1);
  const call = new ServerCall([{ key, holder: 'other', command: 'release sure' }]);
  const { replies: answers } = await call.run(admin, {
    notAfterUs: Infinity,
    ballotToleranceUs: 1e9,
    channel: 'none',
  });
  expect(answers).toEqual(['released']);
  expect(await voteOf(admin, key)).toBeUndefined();
});
