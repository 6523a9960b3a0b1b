import { expect, it } from '@jest/globals';
import { Redis } from 'ioredis';
import { type RedisBackendOptions, redisBackend } from '../../../../lib/backends/redis/index.js';
import { LockConfigError } from '../../../../lib/core/errors.js';

const client = new Redis({ lazyConnect: true });

it.each([
  [undefined, 'got undefined'],
  [
    'redis://:secret@a',
    'expected the argument to be exactly one of { client }, { url } and { options }, got a string',
  ],
  [client, 'got a client by itself'],
  [['redis://:secret@a'], 'got a list'],
  [{}, 'expected the argument to be exactly one of { client }, { url } and { options }, got {}'],
  [{ client, url: 'redis://:secret@a' }, 'got { client, url }'],
  [
    { url: undefined },
    'got { url: undefined }: url has no value, probably because an environment variable is not set',
  ],
  [{ client: undefined }, 'got { client: undefined }: client has no value yet'],
  [
    { options: undefined, minReplicas: 1 },
    'got { options: undefined, minReplicas }: options has no value yet',
  ],
  [
    { client: 'redis://:secret@a' },
    'expected client to be a Redis or Cluster client of ioredis, got a string',
  ],
  [{ options: 'redis://:secret@a' }, 'expected options to be an object of options for ioredis, got a string'],
  [{ url: 'http://:secret@a' }, `expected url to be like 'redis://localhost:6379/0'`],
  [{ uri: 'redis://:secret@a' }, `the argument has no option 'uri'`],
])('what is no source is refused, and no password is told (%#)', (options, expected) => {
  const open = () => redisBackend(options as unknown as RedisBackendOptions);
  expect(open).toThrow(LockConfigError);
  expect(open).toThrow(expected);
  expect(open).not.toThrow(/secret/);
});

it('a host without a value is refused, by which ioredis would go to localhost', () => {
  const open = (options: object) => () => redisBackend({ options });
  expect(open({ host: undefined, port: 6379 })).toThrow(
    /options\.host has no value, probably because an environment variable is not set/,
  );
  expect(open({ path: '/run/redis.sock', host: undefined })).not.toThrow();
  expect(open({ port: 6379 })).not.toThrow();
});
