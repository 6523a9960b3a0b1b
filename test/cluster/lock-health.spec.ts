import { randomUUID } from 'node:crypto';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { Logger } from '@nestjs/common';
import { TerminusModule } from '@nestjs/terminus';
import { Test, type TestingModule } from '@nestjs/testing';
import { Redis } from 'ioredis';
import { redisBackend, redlockBackend } from '../../lib/backends/redis/index.js';
import type { LockBackend } from '../../lib/core/backend.js';
import { DistributedLockModule, LockService } from '../../lib/index.js';
import { LockHealthIndicator } from '../../lib/terminus/index.js';
import { freeze, thaw } from '../faults/injection/freeze.js';
import { PERSISTENT, startRedisQuorum } from '../services/redis-quorum.js';
import { startRedis } from '../services/redis-server.js';
import type { Service } from '../services/service.js';
import { storeKinds } from '../support/store-kinds.js';
import { backendOn } from '../support/stores.js';
import { until } from '../support/until.js';

const ends: (() => unknown)[] = [];

beforeEach(() => void vi.spyOn(Logger.prototype, 'warn').mockImplementation(() => undefined));
afterEach(async () => {
  for (const end of ends.splice(0).reverse()) await end();
});

async function boot(backend: LockBackend): Promise<TestingModule> {
  const app = await Test.createTestingModule({
    imports: [TerminusModule, DistributedLockModule.forRoot({ backend, namespace: randomUUID() })],
    providers: [LockHealthIndicator],
  }).compile();
  ends.push(() => app.close());
  return app.init();
}

async function run(starting: Promise<readonly Service[]>): Promise<readonly Service[]> {
  const servers = await starting;
  for (const server of servers) ends.push(() => server.stop());
  return servers;
}

async function kill(server: Service): Promise<void> {
  server.kill('SIGKILL');
  await server.exited;
}

const TIMEOUT_MS = 500;
const LATE = 'no answer in ten times the time';

/** The answer, which must come in time. */
async function healthOf(app: TestingModule) {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(LATE)), 10 * TIMEOUT_MS);
  });
  const health = app.get(LockHealthIndicator).isHealthy('locks', { timeoutMs: TIMEOUT_MS });
  try {
    return (await Promise.race([health, late])).locks;
  } finally {
    clearTimeout(timer);
  }
}

const isStatus = (app: TestingModule, status: string) => async () => (await healthOf(app)).status === status;

describe.each(storeKinds)('the health of $name', ({ start, storeAt }) => {
  it('is up, is down in time while the store is frozen or dead, and is up again', async () => {
    const [server] = await run(start().then((one) => [one]));
    const app = await boot(backendOn(storeAt(server!.url)));
    expect(await healthOf(app)).toEqual({ status: 'up' });
    await freeze(server!);
    expect(await healthOf(app)).toMatchObject({ status: 'down', message: expect.stringContaining('500 ms') });
    thaw(server!);
    await until(isStatus(app, 'up'));
    await kill(server!);
    await until(isStatus(app, 'down'));
    expect(await healthOf(app)).toMatchObject({
      status: 'down',
      message: expect.stringMatching(/^The lock store /),
    });
  }, 60_000);
});

it.each([
  ['memory', 'maxmemory', '1', '0'],
  ['replicas', 'min-replicas-to-write', '1', '0'],
])('a Redis that refuses writes for want of %s is down', async (_what, setting, refusing, usual) => {
  const [server] = await run(startRedis().then((one) => [one]));
  const admin = new Redis(server!.url);
  ends.push(() => admin.disconnect());
  const app = await boot(redisBackend({ url: server!.url }));
  expect(await healthOf(app)).toEqual({ status: 'up' });
  await admin.config('SET', setting, refusing);
  expect(await healthOf(app)).toMatchObject({
    status: 'down',
    message: expect.stringContaining('takes no writes'),
  });
  await admin.config('SET', setting, usual);
  expect(await healthOf(app)).toEqual({ status: 'up' });
  expect(await admin.keys('*')).toEqual([]);
});

it('a quorum is degraded while it does without a server, and down without a majority', async () => {
  const servers = await run(startRedisQuorum(3, PERSISTENT));
  const app = await boot(redlockBackend({ clients: servers.map(({ url }) => ({ url })) }));
  expect(await healthOf(app)).toEqual({ status: 'up' });
  await freeze(servers[0]!);
  // Locks go on, which shows that the server does not answer.
  const useLocks = () => app.get(LockService).withLock('key', () => undefined);
  await until(async () => {
    await useLocks();
    return (await healthOf(app)).status === 'degraded';
  });
  expect(await healthOf(app)).toMatchObject({ servers: 3, voting: 2, needed: 2, away: [expect.any(String)] });
  thaw(servers[0]!);
  await until(isStatus(app, 'up'));
  for (const server of servers.slice(1)) await kill(server);
  // The first answers after the deaths may be time-outs: the clients still try to connect.
  await until(async () => {
    const { status, message } = (await healthOf(app)) as { status: string; message?: string };
    return status === 'down' && message?.includes('2 of 3 Redis servers must agree') === true;
  });
}, 60_000);
