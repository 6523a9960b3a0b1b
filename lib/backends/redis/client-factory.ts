import { type Cluster, Redis, type RedisOptions } from 'ioredis';
import { isReplicaError } from './redis-errors.js';
import type { ScanClient } from './key-scan.js';
import { type RedisSource, databaseOf, isCluster, optionsOf } from './redis-source.js';
import { closeWithoutReplies } from './reply-timeout.js';
import type { ScriptRunner } from './script-runner.js';

/** A connected client. `wait` returns how many replicas have acknowledged the writes of this very connection. */
export interface ServerClient extends ScriptRunner, ScanClient {
  /** Of a Cluster. */
  nodes?(role: 'master'): readonly (ScanClient & { readonly options: RedisOptions })[];
  wait(count: number, timeoutMs: number): Promise<number>;
  info(section: string): Promise<string>;
}

/** After this time without any reply, the connection is closed even if no other one can be opened. */
const MAX_SILENCE_MS = 3_000;
const MAX_RECONNECT_PAUSE_MS = 500;
/** After this time without a reply, the next Sentinel is asked. */
const SENTINEL_TIMEOUT_MS = 1_000;
/** The pause of ioredis after TRYAGAIN. It retries 16 times. */
const RETRY_AFTER_MS = 10;
/** TCP keep-alive of an idle connection, because a host may vanish without closing it. */
const KEEP_ALIVE_MS = 5_000;

/**
 * Commands must neither wait in queues of ioredis nor be resent: a lock that is granted after its caller gave up would have
 * no owner.
 */
const CONNECTION_OPTIONS: RedisOptions = {
  lazyConnect: true,
  enableOfflineQueue: false,
  autoResendUnfulfilledCommands: false,
  maxRetriesPerRequest: 0,
  enableAutoPipelining: false,
  // Without it, ioredis 5 takes a connection that ends before its first reply for ready, and never connects again.
  enableReadyCheck: true,
  // After a failover behind one address, the old connection may still lead to the former primary, now a replica.
  reconnectOnError: isReplicaError,
  // Locks are on the primary, even if the user's client reads from replicas.
  role: 'master',
  readOnly: false,
  sentinelCommandTimeout: SENTINEL_TIMEOUT_MS,
  // A primary that was frozen or cut off still acts as one for a while after the failover.
  failoverDetector: true,
  // Replaced by `closeWithoutReplies`.
  socketTimeout: undefined,
  // In ms. ioredis waits this long for a socket to close, even for a closed one, and keeps the process alive meanwhile.
  disconnectTimeout: 100,
  keepAlive: KEEP_ALIVE_MS,
  // A server that loads its data estimates the remaining time, and ioredis waits that long even if it is ready sooner.
  maxLoadingRetryTime: MAX_RECONNECT_PAUSE_MS,
  retryStrategy,
};

function retryStrategy(attempts: number): number {
  return Math.min(attempts * 50, MAX_RECONNECT_PAUSE_MS);
}

/** A client for requests, which connects only on `connect()`. The server may spend up to `maxServerWaitMs` on a request. */
export const createRequestClient = (source: RedisSource, maxServerWaitMs = 0): Redis | Cluster =>
  connectionTo(source, CONNECTION_OPTIONS, MAX_SILENCE_MS + maxServerWaitMs);

/** A client for notifications only: it may be silent, and its channel gets no key prefix. */
export const createNotificationClient = (source: RedisSource): Redis | Cluster =>
  connectionTo(source, {
    ...CONNECTION_OPTIONS,
    enableOfflineQueue: true,
    autoResubscribe: false,
    keyPrefix: '',
    failoverDetector: false,
  });

type CommandError = Error & { command?: { readonly name: string } };

function connectionTo(
  source: RedisSource,
  overrides: RedisOptions,
  maxSilenceMs = MAX_SILENCE_MS,
): Redis | Cluster {
  const client = duplicate(source, overrides);
  // Must be the first listener, so that no other one sees the command: that of AUTH contains the password.
  client.on('error', (error: CommandError) => {
    // ioredis would go on with database 0, where other processes do not see the locks. A Cluster has only database 0.
    const isSelect = error.command?.name === 'select' && !/cluster mode/.test(error.message);
    delete error.command;
    if (isSelect) client.disconnect(true);
  });
  client.on('connect', () => ignoreSentinelErrors(client));
  if (isCluster(client)) client.on('+node', (node: Redis) => closeWithoutReplies(node, maxSilenceMs));
  else closeWithoutReplies(client, maxSilenceMs);
  return client;
}

function duplicate(source: RedisSource, overrides: RedisOptions): Redis | Cluster {
  if ('url' in source) return new Redis({ ...optionsOf(source), ...overrides });
  if ('options' in source) return withCredentialsOf(source, new Redis({ ...source.options, ...overrides }));
  const { client } = source;
  return isCluster(client)
    ? duplicateCluster(client, overrides)
    : withCredentialsOf(client, client.duplicate({ ...overrides, db: databaseOf(source) ?? 0 }));
}

function withCredentialsOf(source: { readonly options: RedisOptions }, single: Redis): Redis {
  for (const name of CREDENTIALS) readFrom(() => source.options, single.options, name);
  return single;
}

function duplicateCluster(client: Cluster, overrides: RedisOptions): Cluster {
  const { lazyConnect: _, retryStrategy: __, enableOfflineQueue, keyPrefix, ...redisOptions } = overrides;
  const nodeOptions = { ...client.options.redisOptions, ...redisOptions };
  const cluster = client.duplicate(undefined, {
    lazyConnect: true,
    enableOfflineQueue: enableOfflineQueue === true,
    enableAutoPipelining: false,
    ...(keyPrefix !== undefined && { keyPrefix }),
    clusterRetryStrategy: retryStrategy,
    retryDelayOnTryAgain: RETRY_AFTER_MS,
    scaleReads: 'master',
    redisOptions: nodeOptions,
  });
  cluster.on('+node', ({ options }: Redis) => {
    for (const name of CREDENTIALS) {
      // Otherwise they were given for this node only.
      const isShared = (options[name] ?? null) === (nodeOptions[name] ?? null);
      if (isShared) readFrom(() => client.options.redisOptions, options, name);
    }
  });
  return cluster;
}

const CREDENTIALS = ['username', 'password', 'sentinelUsername', 'sentinelPassword'] as const;

/**
 * Makes a duplicated client read a credential of the application's client. Credentials may be rotated while a process
 * runs, and ioredis reads its options at each connect.
 */
function readFrom(
  source: () => RedisOptions | undefined,
  options: RedisOptions,
  name: (typeof CREDENTIALS)[number],
): void {
  Object.defineProperty(options, name, { get: () => source()?.[name], enumerable: true, configurable: true });
}

/** ioredis connects to each Sentinel to detect failovers, and prints an unhandled error event if one is down. */
function ignoreSentinelErrors(client: object): void {
  const { connector } = client as { connector?: { failoverDetector?: { sentinels: { client: Redis }[] } } };
  for (const sentinel of connector?.failoverDetector?.sentinels ?? []) {
    sentinel.client.on('error', () => undefined);
  }
}
