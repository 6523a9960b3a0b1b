import { expect, it } from 'vitest';
import { Cluster, Redis } from 'ioredis';
import { type RedisBackendOptions, redisBackend } from '../../../../../lib/backends/redis/index.js';
import { LockConfigError } from '../../../../../lib/core/errors.js';

const client = new Redis({ lazyConnect: true });

it.each([
  [undefined, 'got undefined'],
  [
    'redis://:secret@a',
    'expected the argument to be exactly one of { client }, { url } and { options }, got a string; write redisBackend({ url })',
  ],
  [client, 'got a client by itself; write redisBackend({ client })'],
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
  [{ url: 'secret:6379' }, 'got a text that begins otherwise; begin it with redis://'],
  [
    { url: '' },
    'got an empty text: url has no value, probably because an environment variable is not set; begin it with redis://',
  ],
  [{ uri: 'redis://:secret@a' }, `the argument has no option 'uri'`],
])('a wrong source is refused, and the message contains no password (%#)', (options, expected) => {
  const open = () => redisBackend(options as unknown as RedisBackendOptions);
  expect(open).toThrow(LockConfigError);
  expect(open).toThrow(expected);
  expect(open).not.toThrow(/secret/);
});

it('a host without a value is refused, because ioredis would connect to localhost', () => {
  const open = (options: object) => () => redisBackend({ options });
  expect(open({ host: undefined, port: 6379 })).toThrow(
    /options\.host has no value, probably because an environment variable is not set/,
  );
  expect(open({ path: '/run/redis.sock', host: undefined })).not.toThrow();
  expect(open({ port: 6379 })).not.toThrow();
});

it.each([
  [{ url: 'redis://:secret@a/undefined' }, 'the database in url'],
  [{ url: 'redis://:secret@a/shop' }, 'the database in url'],
  [{ url: 'redis://:secret@a?db=NaN' }, 'the database in url'],
  [{ options: { host: 'a', db: NaN } }, 'options.db'],
  [{ options: { host: 'a', db: '' } }, 'options.db'],
  [{ client: new Redis({ db: NaN, lazyConnect: true }) }, 'db of the client'],
])(
  'a database that is not a number is refused, because ioredis would use database 0 (%#)',
  (options, path) => {
    const open = () => redisBackend(options as RedisBackendOptions);
    expect(open).toThrow(LockConfigError);
    expect(open).toThrow(
      `expected ${path} to be the number of a database, got NaN: ${path} has no value, probably because an environment ` +
        `variable is not set`,
    );
    expect(open).not.toThrow(/secret/);
  },
);

it.each([
  { url: 'redis://a' },
  { url: 'redis://a/' },
  { url: 'redis://a/3' },
  { options: { db: '3' as unknown as number } },
  { options: { db: null as unknown as number } },
  { client: new Redis({ db: 3, lazyConnect: true }) },
])('a database number, or none, is accepted (%#)', (options) => {
  expect(() => redisBackend(options)).not.toThrow();
});

it('options of ioredis at the wrong place are refused with the right one', () => {
  const options = { host: 'localhost', port: 6379 } as unknown as RedisBackendOptions;
  expect(() => redisBackend(options)).toThrow(
    "no option 'host'; options of ioredis belong in { options: { … } }",
  );
});

it('a database below 0 is refused', () => {
  expect(() => redisBackend({ options: { db: -1 } })).toThrow(
    'options.db to be the number of a database, got -1.',
  );
});

it.each(['redis://undefined:undefined', 'redis://:secret@localhost:NaN', 'redis://:secret#1@localhost'])(
  'a text that is no URL is refused with the likely reasons (%#)',
  (url) => {
    expect(() => redisBackend({ url })).toThrow(
      /not a URL: .* variable is not set, .* not percent-encoded\.$/,
    );
    expect(() => redisBackend({ url })).not.toThrow(/secret/);
  },
);

it('a source beside fields that are undefined is accepted', () => {
  const options = { client: undefined, options: undefined, url: 'redis://a' } as unknown;
  expect(() => redisBackend(options as RedisBackendOptions)).not.toThrow();
});

it.each(['{}', 'shop{}:'])('a Cluster with the keyPrefix %j is refused', (keyPrefix) => {
  const cluster = new Cluster([], { lazyConnect: true, keyPrefix });
  expect(() => redisBackend({ client: cluster })).toThrow(LockConfigError);
  expect(() => redisBackend({ client: cluster })).toThrow(
    "expected the keyPrefix of the Cluster client to have no '{}'",
  );
});
