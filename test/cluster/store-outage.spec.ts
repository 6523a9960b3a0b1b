import { randomUUID } from 'node:crypto';
import { subscribe } from 'node:diagnostics_channel';
import { afterAll, afterEach, beforeEach, describe, expect, it, type MockInstance, vi } from 'vitest';
import { Logger } from '@nestjs/common';
import { Test, type TestingModule } from '@nestjs/testing';
import { DistributedLockModule, LockLostError, LockService, LockUnavailableError } from '../../lib/index.js';
import { freeze, thaw } from '../faults/injection/freeze.js';
import type { Service } from '../services/service.js';
import { storeKinds } from '../support/store-kinds.js';
import { backendOn } from '../support/stores.js';
import { until } from '../support/until.js';

describe.each(storeKinds)('when $name', ({ name, start, storeAt }) => {
  const remembers = name !== 'redis';
  const servers: Service[] = [];
  let app: TestingModule;
  let locks: LockService;
  let warnings: MockInstance<typeof Logger.prototype.warn>;

  /** On the data of the first one: to fill a new folder takes longer than a start. */
  const run = async () => {
    const [first] = servers;
    const server = await start(first && { port: first.port, dataDir: first.dataDir });
    servers.push(server);
    return server;
  };
  const kill = async (server: Service) => {
    server.kill('SIGKILL');
    await server.exited;
  };
  const boot = async (server: Service) => {
    const backend = backendOn(storeAt(server.url));
    const shutdown = { drainMs: 0, abortGraceMs: 0 };
    const imports = [DistributedLockModule.forRoot({ backend, namespace: randomUUID(), shutdown })];
    app = await Test.createTestingModule({ imports }).compile();
    await app.init();
    locks = app.get(LockService);
  };

  beforeEach(() => {
    warnings = vi.spyOn(Logger.prototype, 'warn').mockReturnValue();
    vi.spyOn(Logger.prototype, 'error').mockReturnValue();
  });
  afterEach(async () => {
    await app.close();
    await kill(servers.at(-1)!);
    vi.restoreAllMocks();
  });
  afterAll(async () => {
    for (const server of servers.reverse()) await server.stop();
  });

  it('is down at boot, the application boots, says why it cannot lock, and can once the store is back', async () => {
    const server = await run();
    await kill(server);
    await boot(server);
    const refused: unknown = await locks.acquire('key').catch((error: unknown) => error);
    expect(refused).toBeInstanceOf(LockUnavailableError);
    expect(refused).toMatchObject({ cause: { message: expect.stringMatching(/./) } });
    await run();
    await until(async () => (await locks.tryAcquire('key').catch(() => null)) !== null);
  }, 60_000);

  it('dies while a lock is held and stays away, the signal aborts, and the work still gets its own error out', async () => {
    const server = await run();
    await boot(server);
    const ownError = new Error('of the work');
    const work = locks.withLock('key', { leaseMs: 1_500 }, async ({ signal }) => {
      await kill(server);
      await until(() => signal.aborted);
      expect(signal.reason).toBeInstanceOf(LockLostError);
      throw ownError;
    });
    await expect(work).rejects.toBe(ownError);
    expect(warnings.mock.calls.length).toBeLessThanOrEqual(2);
  }, 60_000);

  it(`restarts while a lock is held, the holder ${remembers ? 'keeps it' : 'is told that it is lost'}`, async () => {
    const server = await run();
    await boot(server);
    const lock = await locks.acquire('key', { leaseMs: 15_000 });
    await kill(server);
    const again = await run();
    const before = lock.remainingMs();
    await until(() => lock.signal.aborted || lock.remainingMs() > before);
    expect(lock.isValid()).toBe(remembers);
    expect(again.pid).not.toBe(server.pid);
  }, 60_000);

  it('restarts while somebody waits, the waiter waits on and gets the lock', async () => {
    const server = await run();
    await boot(server);
    const held = await locks.acquire('key', { leaseMs: 3_000, renew: false });
    const inLine = new Promise((resolve) => subscribe('nestjs-distributed-lock:contended', resolve));
    const waiting = locks.acquire('key', { waitMs: 50_000 });
    await inLine;
    await kill(server);
    await run();
    expect((await waiting).fencingToken > held.fencingToken).toBe(true);
  }, 60_000);

  it('is frozen, who does not wait hears within bounded time that it does not answer', async () => {
    const server = await run();
    await boot(server);
    await locks.withLock('key', () => undefined);
    await freeze(server);
    await expect(locks.tryAcquire('key', { leaseMs: 2_000 })).rejects.toThrow(LockUnavailableError);
    thaw(server);
    await until(async () => (await locks.tryAcquire('key').catch(() => null)) !== null);
  }, 60_000);
});
