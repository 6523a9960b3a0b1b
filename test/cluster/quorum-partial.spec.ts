import { afterEach, describe, expect, it } from 'vitest';
import { Redis } from 'ioredis';
import { redlockBackend } from '../../lib/backends/redis/index.js';
import { ServerCall, fixedWidth } from '../../lib/backends/redis/quorum/server-call.js';
import type { LockBackend } from '../../lib/core/backend.js';
import { PERSISTENT, startRedisQuorum } from '../services/redis-quorum.js';
import { startRedis } from '../services/redis-server.js';
import type { Service } from '../services/service.js';
import { until } from '../support/until.js';

/** What holds if an operation reached some servers only, and others are up later. */

const LIMIT_MS = 5_000;
const LEASE_MS = 60_000;

const ends: (() => unknown)[] = [];
afterEach(async () => {
  for (const end of ends.splice(0).reverse()) await end();
});

async function openQuorum() {
  const servers = await startRedisQuorum(3, PERSISTENT);
  for (const server of servers) ends.push(() => server.stop());
  const open = (): LockBackend => {
    const backend = redlockBackend({ clients: servers.map(({ url }) => ({ url })) });
    ends.push(() => backend.close());
    return backend;
  };
  const [ours, theirs] = [open(), open()];
  await Promise.all([ours, theirs].map((backend) => backend.inspect('any', LIMIT_MS)));
  return { servers, ours, theirs };
}

async function kill(server: Service): Promise<void> {
  server.kill('SIGKILL');
  await server.exited;
}

async function restart({ port, dataDir }: Service): Promise<void> {
  const again = await startRedis({ port, dataDir, args: PERSISTENT });
  ends.push(() => again.stop());
}

async function acquire(backend: LockBackend, holder: string) {
  const request = { key: 'key', holder, leaseMs: LEASE_MS, instance: holder };
  const {
    acquire: [result],
  } = await backend.execute({ acquire: [request] }, LIMIT_MS);
  return result!;
}

describe('a lock on two of three servers, of which one has failed since', () => {
  async function lockOnOne() {
    const { servers, ours, theirs } = await openQuorum();
    await kill(servers[2]!);
    const granted = await acquire(ours, 'ours');
    if (granted.kind !== 'granted') throw new Error(`expected a grant, got ${granted.kind}`);
    await restart(servers[2]!);
    await kill(servers[1]!);
    // The third server counts again, without the lock.
    const areTwoUp = () =>
      theirs.readTicks('key', LIMIT_MS).then(
        () => true,
        () => false,
      );
    await until(areTwoUp);
    return { theirs, fencingToken: granted.fencingToken };
  }

  it('is shown, as it may be held', async () => {
    const { theirs, fencingToken } = await lockOnOne();
    expect(await acquire(theirs, 'theirs')).toMatchObject({ kind: 'taken' });
    expect(await theirs.inspect('key', LIMIT_MS)).toMatchObject({ holder: 'ours', fencingToken });
    // If the second server has not got a longer lease, the lock ends earlier than the first one says.
    expect(await theirs.inspect('key', LIMIT_MS)).toMatchObject({ isUncertain: true });
    expect((await theirs.list({ prefix: '', limit: 10 }, LIMIT_MS)).locks).toMatchObject([{ key: 'key' }]);
  });

  it('is released by force', async () => {
    const { theirs, fencingToken } = await lockOnOne();
    expect(await theirs.forceRelease('key', fencingToken + 1n, LIMIT_MS)).toBe(false);
    expect(await theirs.forceRelease('key', fencingToken, LIMIT_MS)).toBe(true);
    expect(await theirs.inspect('key', LIMIT_MS)).toBeNull();
    expect(await acquire(theirs, 'theirs')).toMatchObject({ kind: 'granted' });
  });
});

it('a pause that reached one server, and was undone on the others, does not come back after a lock of the key', async () => {
  const { servers, ours } = await openQuorum();
  const client = new Redis(servers[2]!.url);
  ends.push(() => client.disconnect());
  client.on('error', () => undefined);
  const nowMs = Date.now();
  const nowUs = nowMs * 1_000;
  const command = `pause P${fixedWidth(nowUs)} 0 ${fixedWidth(nowUs)}`;
  const call = new ServerCall([{ key: 'key', holder: '', command }]);
  await call.run(client, { notAfterUs: nowUs + 1e9, ballotToleranceUs: 1e9, channel: 'any' });
  await kill(servers[2]!);
  await ours.setPaused('key', false, LIMIT_MS);
  expect(await acquire(ours, 'ours')).toMatchObject({ kind: 'granted' });
  await ours.execute({ release: [{ key: 'key', holder: 'ours' }] }, LIMIT_MS);
  await restart(servers[2]!);
  await kill(servers[1]!);
  const readPaused = () =>
    ours.readTicks('key', LIMIT_MS).then(
      ({ isPaused }) => [isPaused ?? false],
      () => undefined,
    );
  let isPaused: readonly boolean[] | undefined;
  await until(async () => (isPaused = await readPaused()) !== undefined);
  expect(isPaused).toEqual([false]);
});
