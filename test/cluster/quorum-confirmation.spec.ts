import { afterEach, expect, it } from 'vitest';
import { redlockBackend } from '../../lib/backends/redis/index.js';
import { MIN_LEASE_MS } from '../../lib/core/options.js';
import { slowProxy } from '../faults/injection/slow-proxy.js';
import { startRedisQuorum } from '../services/redis-quorum.js';

const TIMEOUT_MS = 5_000;
/** In each direction: together more than the servers have for a lease of some ms, and less than they have for a long one. */
const DELAY_MS = 100;

const ends: (() => unknown)[] = [];
afterEach(async () => {
  for (const end of ends.splice(0).reverse()) await end();
});

it('servers have as long for the confirmation of a lock as for the lock itself', async () => {
  const servers = await startRedisQuorum(3);
  for (const server of servers) ends.push(() => server.stop());
  const ways = await Promise.all(servers.map(({ port }) => slowProxy(port)));
  for (const way of ways) ends.push(() => way.close());
  const backend = redlockBackend({ clients: ways.map(({ port }) => ({ url: `redis://127.0.0.1:${port}` })) });
  ends.push(() => backend.close());
  await backend.check!(TIMEOUT_MS);
  for (const way of ways) way.delayMs = DELAY_MS;

  const held = { key: 'key', holder: 'holder' };
  const { acquire } = await backend.execute(
    { acquire: [{ ...held, leaseMs: 30_000, instance: 'spec' }] },
    TIMEOUT_MS,
  );
  expect(acquire).toMatchObject([{ kind: 'granted' }]);
  const { renew } = await backend.execute({ renew: [{ ...held, leaseMs: MIN_LEASE_MS }] }, TIMEOUT_MS);
  expect(renew).toEqual([{ kind: 'renewed' }]);
});
