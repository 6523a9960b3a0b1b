import type { Redis, RedisOptions } from 'ioredis';
import { OptionErrors } from '../../../core/option-errors.js';
import { formatValue } from '../../../core/format.js';
import { type RedisSource, isCluster, keyPrefixOf } from '../redis-source.js';
import {
  collectDatabaseErrors,
  collectSourceErrors,
  describeKind,
  isClient,
  sourceOf,
} from '../source-check.js';
import { MAX_CALL_MS } from './server-call.js';

export interface RedlockOptions {
  /**
   * One entry for each of three or more independent Redis servers: an ioredis client, `{ url }` or `{ options }` as for
   * `redisBackend`. The backend duplicates clients, and never changes or closes them. All processes must list the same
   * servers. If a process has another list, its requests reject with `LockUnavailableError`. To change the list, see
   * "Replace a server" in docs/backends.md.
   */
  readonly clients: readonly (Redis | RedisSource)[];
  /**
   * The longest lease in ms that may be requested. It must be the same in all processes. A new process does not count a
   * server until the server has been up for slightly longer than this time. A running process counts a restarted server
   * at once if it persisted every write before and after the restart (`appendonly yes` and `appendfsync always`).
   *
   * @default 60_000
   */
  readonly maxLeaseMs?: number;
  /**
   * How long to wait for one server, in ms. For short leases it is less: a tenth of the lease, but at least 100 ms.
   *
   * @default 500
   */
  readonly serverLimitMs?: number;
}

export interface ResolvedRedlockOptions {
  readonly sources: readonly RedisSource[];
  readonly maxLeaseMs: number;
  readonly serverLimitMs: number;
}

const MIN_SERVERS = 3;
/** A set of servers is kept in the bits of a 32-bit number. */
const MAX_SERVERS = 31;
const DEFAULT_MAX_LEASE_MS = 60_000;
const MIN_SERVER_LIMIT_MS = 10;

/** @throws LockConfigError that names every wrong option */
export function resolveRedlockOptions(options: RedlockOptions): ResolvedRedlockOptions {
  const errors = new OptionErrors();
  const given = errors.object('the argument', options, ['clients', 'maxLeaseMs', 'serverLimitMs']);
  errors.integerMs('maxLeaseMs', given['maxLeaseMs'], { min: 1_000 });
  errors.integerMs('serverLimitMs', given['serverLimitMs'], { min: MIN_SERVER_LIMIT_MS, max: MAX_CALL_MS });
  const { clients } = given;
  if (Array.isArray(clients)) collectClientErrors(errors, clients);
  else
    errors.add(
      `expected clients to be a list of ${MIN_SERVERS} to ${MAX_SERVERS} servers, got ${describeKind(clients)}`,
    );
  errors.throwIfAny('Wrong redlockBackend() options');
  const { maxLeaseMs = DEFAULT_MAX_LEASE_MS, serverLimitMs = MAX_CALL_MS } = options;
  const sources = options.clients.map((client) => (isClient(client) ? { client } : sourceOf(client)));
  for (const source of sources) collectTopologyErrors(errors, source);
  const prefixes = new Set(sources.map(keyPrefixOf));
  if (prefixes.size > 1) {
    errors.add(
      `expected clients to have the same keyPrefix, got ${[...prefixes].map(formatValue).join(' and ')}`,
    );
  }
  errors.throwIfAny('Wrong redlockBackend() options');
  return { sources, maxLeaseMs, serverLimitMs };
}

function collectClientErrors(errors: OptionErrors, clients: readonly unknown[]): void {
  collectCountErrors(errors, clients);
  const expected = 'a client of ioredis, { url } or { options }';
  for (const [index, client] of clients.entries()) {
    const path = `clients[${index}]`;
    if (isClient(client)) collectDatabaseErrors({ client }, `db of ${path}`, errors);
    else collectSourceErrors(errors, client, { path, expected });
  }
}

function collectCountErrors(errors: OptionErrors, clients: readonly unknown[]): void {
  const { length } = clients;
  if (length === 2) {
    errors.add(
      'expected clients to be of three or more servers, got 2: a majority of two is both of them, so locks are unavailable ' +
        'more often than with one; add a third, or lock on one with redisBackend()',
    );
  } else if (length < MIN_SERVERS || length > MAX_SERVERS) {
    errors.add(`expected clients to be of ${MIN_SERVERS} to ${MAX_SERVERS} servers, got ${length}`);
  }
  if (new Set(clients).size < length)
    errors.add('expected clients to be different, got the same client twice');
}

function collectTopologyErrors(errors: OptionErrors, source: RedisSource): void {
  if ('client' in source && isCluster(source.client)) {
    errors.add(
      'expected clients of single servers, got one of a Redis Cluster, which is one store: lock on it with ' +
        'redisBackend({ client })',
    );
  }
  if ('url' in source) return;
  const { sentinels } = 'client' in source ? (source.client.options as RedisOptions) : source.options;
  if (sentinels) {
    errors.add(
      'expected clients of single servers, got one of a Sentinel group, which fails over to replicas that may lack the ' +
        'newest locks: list servers without failover, or lock on the group with redisBackend()',
    );
  }
}
