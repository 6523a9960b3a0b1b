import { expect, it } from 'vitest';
import { Cluster, Redis } from 'ioredis';
import { type RedlockOptions, redlockBackend } from '../../../../../lib/backends/redis/index.js';
import { LockConfigError } from '../../../../../lib/core/errors.js';

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

it.each([
  [{}, 'expected clients to be a list of 3 to 31 servers, got undefined'],
  [undefined, 'expected clients to be a list of 3 to 31 servers, got undefined'],
  [{ clients: 'redis://:secret@a' }, 'expected clients to be a list of 3 to 31 servers, got a string'],
  [
    { clients: ['redis://:secret@a', ...urls(2)] },
    /clients\[0\] to be a client of ioredis, { url } or { options }, got a string/,
  ],
  [
    { clients: [...urls(2), { url: 'a', client: 1 }] },
    /clients\[2\] to be .* or { options }, got { url, client }/,
  ],
  [
    { clients: [...urls(2), { url: undefined }] },
    /clients\[2\] to be .*, got { url: undefined }: url has no value, probably because an environment variable/,
  ],
  [{ clients: [...urls(2), undefined] }, /clients\[2\] to be .*, got undefined/],
  [
    { clients: [new Redis({ db: NaN, lazyConnect: true }), ...urls(2)] },
    'expected db of clients[0] to be the number of a database, got NaN',
  ],
  [{ clients: [...urls(2), {}] }, /clients\[2\] to be .* or { options }, got {}/],
  [{ clients: [...urls(2), { url: 'redis://c', minReplicas: 1 }] }, "clients[2] has no option 'minReplicas'"],
])('%j is refused, and the message names redlockBackend and what was expected', (options, expected) => {
  const open = () => redlockBackend(options as unknown as RedlockOptions);
  expect(open).toThrow(LockConfigError);
  expect(open).toThrow(expected);
  expect(open).toThrow(/^Wrong redlockBackend\(\) options: /);
  expect(open).not.toThrow(/secret/);
});

it('an even number of servers is accepted', () => {
  expect(redlockBackend({ clients: urls(4) }).name).toBe('redlock');
});

it('one client for two servers is refused', () => {
  const client = new Redis({ lazyConnect: true });
  expect(() => redlockBackend({ clients: [client, client, ...urls(1)] })).toThrow(
    /got the same client twice/,
  );
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

it('clients with different key prefixes are refused: a list would leave locks out', () => {
  const clients = ['a:', 'b:', 'a:'].map((keyPrefix) => new Redis({ lazyConnect: true, keyPrefix }));
  expect(() => redlockBackend({ clients })).toThrow("to have the same keyPrefix, got 'a:' and 'b:'");
  expect(redlockBackend({ clients: [clients[0]!, clients[2]!, { options: { keyPrefix: 'a:' } }] }).name).toBe(
    'redlock',
  );
});

it('the longest lease is maxLeaseMs, by default a minute', () => {
  expect(redlockBackend({ clients: urls(3), maxLeaseMs: 10_000 }).maxLeaseMs).toBe(10_000);
  expect(redlockBackend({ clients: urls(3) }).maxLeaseMs).toBe(60_000);
});

it('a server beside fields that are undefined is accepted', () => {
  const clients = urls(3).map((source) => ({ client: undefined, ...source }));
  expect(redlockBackend({ clients }).name).toBe('redlock');
});
