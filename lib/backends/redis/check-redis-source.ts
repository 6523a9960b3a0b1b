import type { Cluster, Redis } from 'ioredis';
import { Faults } from '../../core/faults.js';
import type { RedisSource } from './connection.js';

const SOURCES = ['client', 'url', 'options'] as const;

/** @throws LockConfigError unless the source is exactly one of a client, a URL or options */
export function checkRedisSource(source: unknown): asserts source is RedisSource {
  const faults = new Faults();
  const given = faults.object('the source', source, SOURCES);
  if (SOURCES.filter((name) => given[name] !== undefined).length !== 1) {
    faults.add(
      `expected exactly one of { client }, { url } and { options }, got { ${Object.keys(given).join(', ')} }`,
    );
  }
  faults.expect('client', given.client, 'a Redis or Cluster client of ioredis', isClient(given.client));
  if (given.url !== undefined && !isRedisUrl(given.url)) {
    // The URL itself may hold a password, so it is not shown.
    faults.add(
      `expected url to be like 'redis://localhost:6379/0' or 'rediss://…', got one that does not begin so`,
    );
  }
  faults.object('options', given.options, Object.keys(given.options ?? {}));
  faults.throwIfAny('Wrong redisBackend() options');
}

export const isClient = (value: unknown): value is Redis | Cluster =>
  typeof value === 'object' &&
  value !== null &&
  'duplicate' in value &&
  'evalsha' in value &&
  'isCluster' in value;

function isRedisUrl(value: unknown): boolean {
  return (
    typeof value === 'string' &&
    URL.canParse(value) &&
    ['redis:', 'rediss:'].includes(new URL(value).protocol)
  );
}
