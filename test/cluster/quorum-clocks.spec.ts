import { randomUUID } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import { Redis } from 'ioredis';
import { redlockBackend } from '../../lib/backends/redis/index.js';
import type { AcquireRequest, LockBackend } from '../../lib/core/backend.js';
import type { AcquireResult } from '../../lib/core/backend-results.js';
import { StoreClock } from '../faults/injection/store-clock.js';
import { PERSISTENT } from '../services/redis-quorum.js';
import { startRedis } from '../services/redis-server.js';
import { until } from '../support/until.js';

const MAX_LEASE_MS = 60_000;
const HOUR_MS = 3_600_000;
const LIMIT_MS = 5_000;

const ends: (() => unknown)[] = [];
afterEach(async () => {
  for (const end of ends.splice(0).reverse()) await end();
});

interface Quorum {
  readonly clocks: readonly StoreClock[];
  readonly urls: readonly string[];
  open(maxLeaseMs?: number): LockBackend;
}

async function quorum(): Promise<Quorum> {
  const clocks: StoreClock[] = [];
  const clients: { url: string }[] = [];
  for (let count = 0; count < 3; count += 1) {
    const clock = await StoreClock.open();
    ends.push(() => clock.close());
    const dataDir = await mkdtemp(join(tmpdir(), 'lock-test-clocks-'));
    ends.push(() => rm(dataDir, { recursive: true, force: true }));
    clock.step(-2 * HOUR_MS);
    const { url, stop } = await startRedis({ args: PERSISTENT, dataDir, env: clock.env });
    clock.reset(); // As if it had been up for two hours.
    ends.push(stop);
    clocks.push(clock);
    clients.push({ url });
  }
  const open = (maxLeaseMs = MAX_LEASE_MS) => {
    const backend = redlockBackend({ clients, maxLeaseMs });
    ends.push(() => backend.close());
    return backend;
  };
  return { clocks, urls: clients.map(({ url }) => url), open };
}

const requestFor = (key: string): AcquireRequest => ({
  key,
  holder: randomUUID(),
  leaseMs: 30_000,
  instance: 'a spec',
});

async function acquire(backend: LockBackend, request: AcquireRequest): Promise<AcquireResult> {
  return (await backend.execute({ acquire: [request] }, LIMIT_MS)).acquire[0]!;
}

async function take(backend: LockBackend, request: AcquireRequest): Promise<bigint> {
  const result = await acquire(backend, request);
  if (result.kind !== 'granted') throw new Error(`expected a grant, got ${result.kind}`);
  return result.fencingToken;
}

async function release(backend: LockBackend, claim: AcquireRequest): Promise<void> {
  await until(async () => {
    const { release } = await backend.execute({ release: [claim] }, LIMIT_MS);
    return release[0]!.kind !== 'unknown';
  });
}

describe('a quorum whose clocks were set back by more than half of maxLeaseMs', () => {
  it.each([
    ['all', [0, 1, 2], HOUR_MS],
    ['a majority', [0, 1], HOUR_MS],
    ['all by a little more', [0, 1, 2], MAX_LEASE_MS / 2 + 2_000],
    ['all by different times', [0, 1, 2], undefined],
  ])('grants new keys to processes that were running: %s', async (_, which, byMs) => {
    const { clocks, open } = await quorum();
    const backend = open();
    await take(backend, requestFor(randomUUID()));
    for (const index of which) clocks[index]!.step(-(byMs ?? HOUR_MS + index * 1_000));
    for (let count = 0; count < 3; count += 1) await take(backend, requestFor(randomUUID()));
    await take(open(), requestFor(randomUUID()));
  });

  it.each([
    ['all', [0, 1, 2]],
    ['a majority', [1, 2]],
  ])('grants known keys with larger tokens, to running and to new processes: %s', async (_, which) => {
    const { clocks, open } = await quorum();
    const running = open();
    const key = randomUUID();
    const before = requestFor(key);
    let newest = await take(running, before);
    await release(running, before);
    for (const index of which) clocks[index]!.step(-HOUR_MS);
    for (const backend of [running, open(), running]) {
      const claim = requestFor(key);
      const token = await take(backend, claim);
      expect(token).toBeGreaterThan(newest);
      newest = token;
      await release(backend, claim);
    }
  });

  it('remembers tokens until the clocks have caught up with them', async () => {
    const { clocks, urls, open } = await quorum();
    const before = requestFor(randomUUID());
    await take(open(), before);
    await release(open(), before);
    for (const clock of clocks) clock.step(-HOUR_MS);
    const servers = urls.map((url) => new Redis(url));
    ends.push(() => servers.forEach((server) => server.disconnect()));
    // As if the server had received the key only now.
    const shorten = (server: Redis) => server.pexpire(`{${before.key}}:vote`, MAX_LEASE_MS);
    const shortened = await Promise.all(servers.map(shorten));
    expect(shortened.filter((count) => count === 1).length).toBeGreaterThanOrEqual(2);
    const claim = requestFor(before.key);
    const newest = await take(open(), claim);
    await release(open(), claim);
    for (const clock of clocks) clock.step(HOUR_MS / 2);
    expect(await take(open(), requestFor(before.key))).toBeGreaterThan(newest);
  });

  it('grants each tick once, also of known jobs', async () => {
    const { clocks, open } = await quorum();
    const running = open();
    const known = randomUUID();
    const claim = (key: string, tickMs: number) => ({
      ...requestFor(key),
      tick: { tickMs, maxEarlyMs: HOUR_MS, staleAfterMs: 2 * HOUR_MS },
    });
    const tickMs = Math.floor(Date.now() / 1_000) * 1_000;
    const first = claim(known, tickMs);
    let newest = await take(running, first);
    await release(running, first);
    for (const clock of clocks) clock.step(-HOUR_MS + 60_000);
    for (const key of [known, randomUUID()]) {
      const second = claim(key, tickMs + 1_000);
      const token = await take(running, second);
      if (key === known) expect(token).toBeGreaterThan(newest);
      newest = token;
      await release(running, second);
      expect((await acquire(open(), claim(key, tickMs + 1_000))).kind).toBe('refused');
    }
  });

  it('has votes for new processes after one quarantine', async () => {
    const { clocks, open } = await quorum();
    for (const clock of clocks) clock.step(-24 * HOUR_MS);
    const backend = open(1_000);
    await until(
      async () =>
        (await acquire(backend, { ...requestFor(randomUUID()), leaseMs: 1_000 })).kind === 'granted',
    );
  });

  it('grants nothing twice', async () => {
    const { clocks, open } = await quorum();
    const [holder, other] = [open(), open()];
    const held = requestFor(randomUUID());
    await take(holder, held);
    await take(other, requestFor(randomUUID()));
    for (const clock of clocks) clock.step(-HOUR_MS);
    for (const backend of [other, holder, open()])
      expect((await acquire(backend, requestFor(held.key))).kind).toBe('taken');
    const { renew } = await holder.execute({ renew: [held] }, LIMIT_MS);
    expect(renew[0]!.kind).toBe('renewed');
    expect((await acquire(other, requestFor(held.key))).kind).toBe('taken');
  });
});
