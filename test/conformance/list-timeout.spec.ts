import { randomUUID } from 'node:crypto';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { Redis } from 'ioredis';
import { DataSource } from 'typeorm';
import { redisBackend } from '../../lib/backends/redis/index.js';
import { typeormBackend } from '../../lib/backends/typeorm/index.js';
import type { LockBackend } from '../../lib/core/backend.js';
import { type SlowProxy, slowProxy } from '../faults/injection/slow-proxy.js';
import { startRedis } from '../services/redis-server.js';
import type { Service } from '../services/service.js';
import { dataSourceOptions, postgresStore } from '../support/stores.js';

const TIMEOUT_MS = 10_000;
const prefix = `list:${randomUUID()}:`;
const keys = Array.from({ length: 200 }, (_, index) => `${prefix}${index}`);

async function acquireAll(backend: LockBackend): Promise<void> {
  const acquire = keys.map((key) => ({ key, holder: randomUUID(), leaseMs: 60_000, instance: 'spec' }));
  const results = await backend.execute({ acquire }, TIMEOUT_MS);
  expect(new Set(results.acquire.map(({ kind }) => kind))).toEqual(new Set(['granted']));
}

/** The keys of the pages from the cursor on, or of all pages. */
async function listFrom(backend: LockBackend, cursor: string | undefined, limit: number): Promise<string[]> {
  const page = await backend.list({ prefix, cursor, limit }, TIMEOUT_MS);
  const listed = page.locks.map(({ key }) => key);
  return page.cursor === undefined ? listed : [...listed, ...(await listFrom(backend, page.cursor, limit))];
}

describe('a page of a list whose time is over', () => {
  describe('on Redis', () => {
    let server: Service;
    let proxy: SlowProxy;
    let backend: LockBackend;
    beforeAll(async () => {
      server = await startRedis();
      proxy = await slowProxy(server.port);
      backend = redisBackend({ url: `redis://127.0.0.1:${proxy.port}` });
    });
    afterAll(async () => {
      await backend.close();
      await proxy.close();
      await server.stop();
    });

    it('has the locks that were found, and its cursor leads to the others', async () => {
      await acquireAll(backend);
      const client = new Redis(server.url);
      await client.mset(
        Object.fromEntries(Array.from({ length: 5_000 }, (_, index) => [`other:${index}`, ''])),
      );
      await client.quit();
      // A step scans at most 500 keys and takes 40 ms, and a page takes a quarter of the timeout: too little for 5,200 keys.
      proxy.delayMs = 20;
      const first = await backend.list({ prefix, limit: 1_000 }, 400);
      expect(first.cursor).toBeDefined();
      expect(first.locks.length).toBeLessThan(keys.length);
      proxy.delayMs = 0;
      const others = await listFrom(backend, first.cursor, 1_000);
      const listed = new Set([...first.locks.map(({ key }) => key), ...others]);
      expect([...listed].sort()).toEqual([...keys].sort());
    });
  });

  describe('on PostgreSQL', () => {
    const ends: (() => Promise<unknown>)[] = [];
    afterEach(async () => {
      for (const end of ends.splice(0).reverse()) await end();
    });

    it('is refused, and can be listed with the same cursor later', async () => {
      const options = dataSourceOptions(postgresStore());
      const backend = typeormBackend({ dataSource: options, table: 'list_timeout' });
      ends.push(() => backend.close());
      await acquireAll(backend);
      const first = await backend.list({ prefix, limit: 150 }, TIMEOUT_MS);
      expect(first.locks).toHaveLength(150);

      const admin = await new DataSource(options).initialize();
      ends.push(() => admin.destroy());
      const runner = admin.createQueryRunner();
      ends.push(() => runner.release());
      await runner.query('BEGIN');
      await runner.query('LOCK TABLE list_timeout IN ACCESS EXCLUSIVE MODE');
      const second = backend.list({ prefix, cursor: first.cursor, limit: 150 }, 300);
      await expect(second).rejects.toThrow('300 ms');
      await runner.query('COMMIT');

      const others = await listFrom(backend, first.cursor, 150);
      const listed = new Set([...first.locks.map(({ key }) => key), ...others]);
      expect([...listed].sort()).toEqual([...keys].sort());
    });
  });
});
