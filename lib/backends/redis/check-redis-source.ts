import type { Cluster, Redis } from 'ioredis';
import { Faults } from '../../core/faults.js';
import { type RedisSource, isCluster } from './connection.js';
import type { ReplicaOptions } from './replicas.js';

const SOURCES = ['client', 'url', 'options'] as const;
const REPLICA_OPTIONS = ['minReplicas', 'replicaTimeoutMs'] as const;
/** Answers are of no use for longer than that. */
const LONGEST_REPLICA_TIMEOUT_MS = 5_000;

/** @throws LockConfigError unless the source is exactly one of a client, a URL or options */
export function checkRedisSource(source: unknown): asserts source is RedisSource & ReplicaOptions {
  const faults = new Faults();
  const given = faults.object('the source', source, [...SOURCES, ...REPLICA_OPTIONS]);
  if (SOURCES.filter((name) => given[name] !== undefined).length !== 1) {
    faults.add(
      `expected exactly one of { client }, { url } and { options }, got { ${Object.keys(given).join(', ')} }`,
    );
  }
  checkReplicas(given, faults);
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

function checkReplicas(given: Readonly<Record<string, unknown>>, faults: Faults): void {
  const { client, minReplicas, replicaTimeoutMs } = given;
  const isCount = Number.isInteger(minReplicas) && (minReplicas as number) >= 1;
  faults.expect('minReplicas', minReplicas, 'a whole number of replicas, at least 1', isCount);
  faults.wholeMs('replicaTimeoutMs', replicaTimeoutMs, { min: 1, max: LONGEST_REPLICA_TIMEOUT_MS });
  if (minReplicas === undefined && replicaTimeoutMs !== undefined) {
    faults.add('expected minReplicas beside replicaTimeoutMs, which says how long to wait for them');
  }
  if (minReplicas !== undefined && isClient(client) && isCluster(client)) {
    faults.add(
      `expected no minReplicas with a Cluster client, which cannot ask the very node of a key with WAIT; set ` +
        `min-replicas-to-write in the configuration of the nodes instead`,
    );
  }
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
