import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Test, type TestingModule } from '@nestjs/testing';
import { Redis } from 'ioredis';
import { redisBackend } from '../../lib/backends/redis/index.js';
import { DistributedLockModule, LockConfigError, type LockInfo, LockService } from '../../lib/index.js';
import { serviceUrl } from '../support/environment.js';
import { until } from '../support/until.js';

const url = serviceUrl('TEST_REDIS_URL');
/** In a pattern of Redis, `[` and `*` would have another meaning. */
const keyPrefix = 'a[b]*prefix:';

/** Two replicas on one Redis, in which other keys are too. */
describe('list()', () => {
  const replicas: TestingModule[] = [];
  const clients: Redis[] = [];
  const locksOf = (index: number) => replicas[index]!.get(LockService);
  beforeAll(async () => {
    for (const namespace of ['shop', 'shop', 'other shop']) {
      const client = new Redis(url, { keyPrefix });
      clients.push(client);
      const imports = [DistributedLockModule.forRoot({ backend: redisBackend({ client }), namespace })];
      replicas.push(await Test.createTestingModule({ imports }).compile());
    }
    await Promise.all(replicas.map((replica) => replica.init()));
    await clients[0]!.set('{shop:order:not a lock}', 'any');
  });
  afterAll(async () => {
    await Promise.all(replicas.map((replica) => replica.close()));
    await Promise.all(clients.map((client) => client.quit()));
  });

  async function listAll(locks: LockService, prefix: string, limit: number): Promise<LockInfo[][]> {
    const pages: LockInfo[][] = [];
    let cursor: string | undefined;
    do {
      const page = await locks.list({ prefix, limit, ...(cursor !== undefined && { cursor }) });
      pages.push(page.locks);
      cursor = page.cursor;
    } while (cursor !== undefined);
    return pages;
  }

  it('has the locks of the namespace, in pages', async () => {
    const keys = Array.from({ length: 250 }, (_, index) => `order:${index}`);
    const held = await Promise.all(keys.map((key, index) => locksOf(index % 2).acquire(key)));
    const others = [await locksOf(0).acquire('invoice:1'), await locksOf(2).acquire('order:1')];
    const pages = await listAll(locksOf(1), 'order:', 100);
    for (const page of pages) expect(page.length).toBeLessThanOrEqual(100);
    expect([...new Set(pages.flat().map(({ key }) => key))].sort()).toEqual(keys.sort());
    const small = await listAll(locksOf(1), 'order:', 7);
    expect([...new Set(small.flat().map(({ key }) => key))].sort()).toEqual(keys.sort());
    await Promise.all([...held, ...others].map((lock) => lock.release()));
    expect((await listAll(locksOf(1), '', 100)).flat()).toEqual([]);
  });

  it('shows who holds a lock, and who waits for it', async () => {
    const held = await locksOf(0).acquire('report');
    const waiting = locksOf(1).acquire('report');
    await until(async () => (await locksOf(0).inspect('report'))?.queued === 1);
    const { locks } = await locksOf(1).list({ prefix: 'rep' });
    expect(locks).toEqual([
      {
        key: 'report',
        holder: expect.any(String),
        instance: expect.any(String),
        since: expect.any(Date),
        remainingMs: expect.any(Number),
        fencingToken: held.fencingToken,
        waiting: 1,
        queued: 1,
      },
    ]);
    expect(JSON.stringify(locks)).toContain(`"fencingToken":"${held.fencingToken}"`);
    await held.release();
    await (await waiting).release();
  });

  it('refuses a cursor that names keys of another prefix', async () => {
    const held = await locksOf(0).acquire('secret');
    const position = JSON.stringify([['server'], 1, '0', ['shop:secret']]);
    const cursor = `l${Buffer.from(position).toString('base64url')}`;
    expect((await locksOf(1).list({ prefix: 'sec', cursor })).locks).toHaveLength(1);
    await expect(locksOf(1).list({ prefix: 'order:', cursor })).rejects.toThrow(LockConfigError);
    await expect(locksOf(2).list({ cursor })).rejects.toThrow(LockConfigError);
    await held.release();
  });

  it('refuses a cursor of more than 64 bits', async () => {
    const position = JSON.stringify([['server'], 0, '99999999999999999999', []]);
    const cursor = `l${Buffer.from(position).toString('base64url')}`;
    await expect(locksOf(1).list({ cursor })).rejects.toThrow(LockConfigError);
  });

  it.each([
    [{ limit: 0 }, 'options.limit'],
    [{ limit: 1_001 }, 'options.limit'],
    [{ limit: '10' }, 'options.limit'],
    [{ prefix: 1 }, 'options.prefix'],
    [{ prefix: 'a\0' }, 'options.prefix'],
    [{ cursor: '' }, 'options.cursor'],
    [{ cursor: 'next' }, 'the cursor that list() returned'],
    [{ start: 'a' }, "no option 'start'"],
    [null, 'to be an object'],
  ])('with the wrong options %j is refused', async (options, message) => {
    const listing = locksOf(0).list(options as object);
    await expect(listing).rejects.toThrow(LockConfigError);
    await expect(listing).rejects.toThrow(message);
  });
});
