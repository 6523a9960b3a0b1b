import { expect, it } from '@jest/globals';
import { Cluster, Redis } from 'ioredis';
import { redlockBackend } from '../../../../lib/backends/redis/index.js';
import { LockConfigError } from '../../../../lib/core/errors.js';

const urls = (count: number) =>
  Array.from({ length: count }, (_, index) => ({ url: `redis://127.0.0.1:${index + 1}` }));

it('two servers are refused, with the reason', () => {
  expect(() => redlockBackend({ clients: urls(2) })).toThrow(LockConfigError);
  expect(() => redlockBackend({ clients: urls(2) })).toThrow(/a majority of two is both of them/);
});

it('one server is refused', () => {
  expect(() => redlockBackend({ clients: urls(1) })).toThrow(
    /expected clients to be of 3 to 31 servers, got 1/,
  );
});

it('an even number of servers is accepted', () => {
  expect(redlockBackend({ clients: urls(4) }).name).toBe('redlock');
});

it('one client for two servers is refused', () => {
  const client = new Redis({ lazyConnect: true });
  expect(() => redlockBackend({ clients: [client, client, ...urls(1)] })).toThrow(/got one twice/);
});

it('a client of a Cluster is refused, with what to use instead', () => {
  const cluster = new Cluster([{ host: '127.0.0.1', port: 1 }], { lazyConnect: true });
  const clients = [cluster as unknown as Redis, ...urls(2)];
  expect(() => redlockBackend({ clients })).toThrow(/redisBackend\(\{ client \}\)/);
});

it('a Sentinel group is refused, with the reason', () => {
  const options = { name: 'group', sentinels: [{ host: '127.0.0.1', port: 1 }], lazyConnect: true };
  for (const group of [{ options }, new Redis(options)]) {
    expect(() => redlockBackend({ clients: [group, ...urls(2)] })).toThrow(/may lack the newest locks/);
  }
});

it('a lease that is longer than a server is kept from voting is refused before anything is sent', async () => {
  const backend = redlockBackend({ clients: urls(3), maxLeaseMs: 10_000 });
  const request = { key: 'key', holder: 'holder', leaseMs: 10_001, instance: 'a spec' };
  const { acquire } = await backend.exchange({ acquire: [request] }, 1_000);
  expect(acquire[0]).toMatchObject({
    kind: 'unknown',
    wasSent: false,
    cause: expect.any(LockConfigError) as unknown,
  });
});
