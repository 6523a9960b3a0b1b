import type { Redis, RedisOptions } from 'ioredis';
import { OptionErrors } from '../../../core/option-errors.js';
import { collectDatabaseErrors, collectSourceErrors, isClient, describeKind } from '../source-options.js';
import { type RedisSource, isCluster } from '../connection.js';
import { MAX_CALL_MS } from './server-call.js';

export interface RedlockOptions {
  /**
   * Clients of ioredis, one for each of three or more Redis servers that know nothing of each other; or where they are, as
   * for `redisBackend`. They are duplicated, and neither changed nor closed. All processes must name the same servers:
   * a server that counts others refuses a process with another list, which then rejects with `LockUnavailableError`. "Replace a
   * server" in docs/backends.md says how to change the list.
   */
  readonly clients: readonly (Redis | RedisSource)[];
  /**
   * The longest lease that may be asked for, the same in all processes. A new process does not count a server before it has been
   * up for so long and a little more. A running process counts a server at once after a restart if the server persisted
   * every write before and after it (`appendonly yes` and `appendfsync always`).
   *
   * @default 60_000
   */
  readonly maxLeaseMs?: number;
  /**
   * How long one server is waited for, at most. It is less for short leases: a tenth of them, but at least 100 ms.
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
/** Votes are counted in the bits of a number. */
const MAX_SERVERS = 31;
const DEFAULT_MAX_LEASE_MS = 60_000;
const MIN_SERVER_LIMIT_MS = 10;

/** @throws LockConfigError with all that is wrong */
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
  const sources = options.clients.map((client) => (isClient(client) ? { client } : client));
  for (const source of sources) collectTopologyErrors(errors, source);
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
      'expected clients to be of three or more servers, got 2: a majority of two is both of them, so that two are down ' +
        'more often than one is; add a third, or lock on one with redisBackend()',
    );
  } else if (length < MIN_SERVERS || length > MAX_SERVERS) {
    errors.add(`expected clients to be of ${MIN_SERVERS} to ${MAX_SERVERS} servers, got ${length}`);
  }
  if (new Set(clients).size < length) errors.add('expected each of clients to be another one, got one twice');
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
      'expected clients of single servers, got one of a Sentinel group, which goes over to replicas that may lack the ' +
        'newest locks: name servers that stay what they are, or lock on the group with redisBackend()',
    );
  }
}
