import { afterEach, expect, it } from 'vitest';
import { redlockBackend } from '../../lib/backends/redis/index.js';
import type { ServerStatus } from '../../lib/core/store-notices.js';
import { slowProxy } from '../faults/injection/slow-proxy.js';
import { askRedis } from '../services/ask-redis.js';
import { PERSISTENT, startRedisQuorum } from '../services/redis-quorum.js';
import { startRedis } from '../services/redis-server.js';
import type { Service } from '../services/service.js';
import { until } from '../support/until.js';

const TIMEOUT_MS = 10_000;
/** In each direction: longer than a server may take to vote. */
const DELAY_MS = 400;

const ends: (() => unknown)[] = [];
afterEach(async () => {
  for (const end of ends.splice(0).reverse()) await end();
});

/** A backend on three servers, of which one has died, and the way to another. */
async function openOnTwo() {
  const servers = await startRedisQuorum(3);
  for (const server of servers) ends.push(() => server.stop());
  const [dead, far, near] = servers;
  const way = await slowProxy(far!.port);
  ends.push(() => way.close());
  const clients = [dead!.url, `redis://127.0.0.1:${way.port}`, near!.url].map((url) => ({ url }));
  const backend = redlockBackend({ clients });
  ends.push(() => backend.close());
  await backend.check?.(TIMEOUT_MS);
  dead!.kill('SIGKILL');
  await dead!.exited;
  return { backend, way, near: near! };
}

it('the history waits for a slow server as long as its caller does', async () => {
  const { backend, way } = await openOnTwo();
  way.delayMs = DELAY_MS;
  await backend.appendHistory('key', 'entry', TIMEOUT_MS);
  expect(await backend.readHistory('key', TIMEOUT_MS)).toEqual(['entry']);
});

it('the error of a server that refuses an entry is told', async () => {
  const { backend, near } = await openOnTwo();
  await askRedis(near.url, (admin) => admin.acl('SETUSER', 'default', '-lpush'));
  await expect(backend.appendHistory('key', 'entry', TIMEOUT_MS)).rejects.toThrow(
    `127.0.0.1:${near.port} refused: ERR The user executing the script can't run this command`,
  );
});

it('a server without a vote does not count', async () => {
  const [first, ...others] = await startRedisQuorum(3, PERSISTENT);
  const servers = [first!, ...others];
  for (const server of servers) ends.push(() => server.stop());
  const backend = redlockBackend({ clients: servers.map(({ url }) => ({ url })) });
  ends.push(() => backend.close());
  await backend.appendHistory('key', 'entry', TIMEOUT_MS);
  // One server has lost the entry, and another one is away.
  const { port } = servers[1]!;
  for (const server of servers.slice(0, 2)) {
    server.kill('SIGKILL');
    await server.exited;
  }
  const empty = await startRedis({ port });
  ends.push(() => empty.stop());
  const whyNotReady = () => backend.check!(TIMEOUT_MS).then(() => '', String);
  await until(async () => (await whyNotReady()).includes('restarted'));
  await expect(backend.readHistory('key', TIMEOUT_MS)).rejects.toThrow('2 of 3 Redis servers must agree');
  await expect(backend.appendHistory('key', 'other', TIMEOUT_MS)).rejects.toThrow('2 of 3');
});

it('a server without a vote does not count, however soon it replies', async () => {
  const [has, forgets, misses] = await startRedisQuorum(3, PERSISTENT);
  const way = await slowProxy(has!.port);
  ends.push(() => way.close());
  for (const server of [has!, forgets!, misses!]) ends.push(() => server.stop());
  const clients = [`redis://127.0.0.1:${way.port}`, forgets!.url, misses!.url].map((url) => ({ url }));
  const backend = redlockBackend({ clients });
  ends.push(() => backend.close());
  await backend.check!(TIMEOUT_MS);
  await restart(misses!, () => backend.appendHistory('key', 'entry', TIMEOUT_MS), PERSISTENT);
  const statuses: ServerStatus[] = [];
  backend.onServerStatus!((status) => statuses.push(status));
  await restart(forgets!);
  await until(() => statuses.some(({ fault }) => fault?.includes('restarted')));
  await until(() => statuses.at(-1)!.voting === 2);
  way.delayMs = 100;
  expect(await backend.readHistory('key', TIMEOUT_MS)).toEqual(['entry']);
});

/** Without `args`, it has lost its data. */
async function restart(
  { port, dataDir, ...server }: Service,
  whileAway = () => Promise.resolve(),
  args?: readonly string[],
): Promise<void> {
  server.kill('SIGKILL');
  await server.exited;
  await whileAway();
  const again = await startRedis(args ? { port, dataDir, args } : { port });
  ends.push(() => again.stop());
}
