import { randomUUID } from 'node:crypto';
import { afterEach, expect, it } from 'vitest';
import { Redis } from 'ioredis';
import { redisBackend, redlockBackend } from '../../lib/backends/redis/index.js';
import { createAcquireRequest, createAcquisitionId } from '../../lib/testing/laws/law.js';
import { FaultProxy } from '../faults/injection/fault-proxy.js';
import { startRedisQuorum, stopAll } from '../services/redis-quorum.js';
import { until } from '../support/until.js';

const ends: (() => unknown)[] = [];
afterEach(async () => {
  for (const end of ends.splice(0).reverse()) await end();
});

/** As Bull demands it of the clients that it is given. */
const clientOn = (port: number) =>
  new Redis({ port, lazyConnect: true, enableReadyCheck: false, maxRetriesPerRequest: null });

it.each([
  ['one Redis', (clients: readonly Redis[]) => redisBackend({ client: clients[0]! })],
  ['a quorum', (clients: readonly Redis[]) => redlockBackend({ clients })],
])(
  '%s is reached again after its address has closed connections before a reply, also without a ready check',
  async (_, open) => {
    const servers = await startRedisQuorum(3);
    ends.push(() => stopAll(servers));
    const proxies = await Promise.all(servers.map(({ port }) => FaultProxy.to(port)));
    for (const proxy of proxies) ends.push(() => proxy.close());
    const backend = open(proxies.map(({ port }) => clientOn(port)));
    ends.push(() => backend.close());
    const acquire = async () => {
      const request = createAcquireRequest(createAcquisitionId(randomUUID()));
      return (await backend.execute({ acquire: [request] }, 1_000)).acquire[0]!.kind;
    };
    for (const proxy of proxies) proxy.setConditions({ cuts: 'request' });
    expect(await acquire()).toBe('unknown');
    for (const proxy of proxies) proxy.heal();
    await until(async () => (await acquire()) === 'granted');
  },
);
