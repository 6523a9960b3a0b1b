import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { redlockBackend } from '../../lib/backends/redis/quorum/redlock-backend.js';
import type { LockBackend } from '../../lib/core/backend.js';
import { startRedisQuorum, stopAll } from '../services/redis-quorum.js';
import type { Service } from '../services/service.js';
import { until } from '../support/until.js';

const TIMEOUT_MS = 5_000;

let servers: readonly Service[];
let backend: LockBackend;
const keys = Array.from({ length: 30 }, (_, index) => `list:${index}`);
beforeAll(async () => {
  servers = await startRedisQuorum(5);
  backend = redlockBackend({ clients: servers.map(({ url }) => ({ url })) });
  const acquire = keys.map((key) => ({ key, holder: randomUUID(), leaseMs: 60_000, instance: 'spec' }));
  const { acquire: results } = await backend.execute({ acquire }, TIMEOUT_MS);
  expect(new Set(results.map(({ kind }) => kind))).toEqual(new Set(['granted']));
});
afterAll(async () => {
  await backend.close();
  await stopAll(servers);
});

async function listAll(): Promise<string[]> {
  const listed: string[] = [];
  for (let cursor: string | undefined, isLast = false; !isLast; isLast = cursor === undefined) {
    const page = await backend.list({ prefix: 'list:', cursor, limit: 7 }, TIMEOUT_MS);
    listed.push(...page.locks.map(({ key }) => key));
    cursor = page.cursor;
  }
  return listed.sort();
}

it('a key that is on several servers is listed once', async () => {
  expect(await listAll()).toEqual([...keys].sort());
});

it('all keys are listed while a majority is up', async () => {
  for (const server of servers.slice(0, 2)) server.kill('SIGKILL');
  // Until the loss is known, a list may begin on one of these servers, and then rejects.
  await until(() =>
    listAll().then(
      () => true,
      () => false,
    ),
  );
  expect(await listAll()).toEqual([...keys].sort());
});

it('a list without a majority rejects', async () => {
  servers[2]?.kill('SIGKILL');
  await until(() =>
    listAll().then(
      () => false,
      (error: unknown) => String(error).includes('3 of 5 Redis servers must agree'),
    ),
  );
});
