import { type Cluster, Redis, type RedisOptions } from 'ioredis';
import { formatReason } from '../../core/format.js';
import type { ScanClient } from './key-scan.js';
import type { ScriptRunner } from './script-runner.js';

/**
 * How to connect to Redis: exactly one of `client`, `url` and `options`. The backend always opens its own connection.
 */
export type RedisSource =
  | {
      /** A `Redis` or `Cluster` client of ioredis. The backend duplicates it, and never changes or closes it. */
      readonly client: Redis | Cluster;
    }
  | {
      /** `redis://user:password@host:port/db`, or `rediss://` for TLS. */
      readonly url: string;
    }
  | {
      /** Options of ioredis for one server or Sentinel. */
      readonly options: RedisOptions;
    };

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
  // After a failover behind one address, the old connection may still lead to the former primary, now a replica.
  reconnectOnError: isReplicaError,
  // Locks are on the primary, even if the user's client reads from replicas.
  role: 'master',
  readOnly: false,
  sentinelCommandTimeout: SENTINEL_TIMEOUT_MS,
  // A primary that was frozen or cut off still acts as one for a while after the failover.
  failoverDetector: true,
  socketTimeout: MAX_SILENCE_MS,
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
export const requestConnection = (source: RedisSource, maxServerWaitMs = 0): Redis | Cluster =>
  connectionTo(source, { ...CONNECTION_OPTIONS, socketTimeout: MAX_SILENCE_MS + maxServerWaitMs });

/** A client for notifications only: it may be silent, and its channel gets no key prefix. */
export const notificationConnection = (source: RedisSource): Redis | Cluster =>
  connectionTo(source, {
    ...CONNECTION_OPTIONS,
    enableOfflineQueue: true,
    autoResubscribe: false,
    keyPrefix: '',
    failoverDetector: false,
  });

/** The prefix that ioredis adds to each key, also to the KEYS of a script. */
export const keyPrefixOf = (source: RedisSource): string => givenOptions(source).keyPrefix ?? '';

/** The database that ioredis will select; `undefined` in a Cluster, or if none is given. */
export const databaseOf = (source: RedisSource): number | undefined => {
  const { db } = givenOptions(source) as { readonly db?: number | string | null };
  return typeof db === 'string' ? parseInt(db, 10) : (db ?? undefined);
};

/** The address of the server for messages, never with a user name or password. */
export const addressOf = (source: RedisSource): string => {
  const { host = 'localhost', port = 6379, path, db = 0 } = givenOptions(source);
  const address = path ?? (host.includes(':') ? `[${host}]:${port}` : `${host}:${port}`);
  return db === 0 ? address : `${address}/${db}`;
};

const givenOptions = (source: RedisSource): RedisOptions =>
  'client' in source ? source.client.options : optionsOf(source);

/** A URL may contain options too, so ioredis parses it. */
const optionsOf = (source: Exclude<RedisSource, { client: unknown }>): RedisOptions =>
  'url' in source ? new Redis(source.url, { lazyConnect: true }).options : source.options;

type CommandError = Error & { command?: { readonly name: string } };

function connectionTo(source: RedisSource, overrides: RedisOptions): Redis | Cluster {
  const client = duplicate(source, overrides);
  // Must be the first listener, so that no other one sees the command: that of AUTH contains the password.
  client.on('error', (error: CommandError) => {
    // ioredis would go on with database 0, where other processes do not see the locks. A Cluster has only database 0.
    const isSelect = error.command?.name === 'select' && !/cluster mode/.test(error.message);
    delete error.command;
    if (isSelect) client.disconnect(true);
  });
  client.on('connect', () => ignoreSentinelErrors(client));
  client.on('close', () => clearSocketTimer(client));
  // A node of a Cluster has left.
  client.on('-node', clearSocketTimer);
  return client;
}

function duplicate(source: RedisSource, overrides: RedisOptions): Redis | Cluster {
  if ('url' in source) return new Redis({ ...optionsOf(source), ...overrides });
  if ('options' in source) return withCredentialsOf(source, new Redis({ ...source.options, ...overrides }));
  const { client } = source;
  return isCluster(client)
    ? duplicateCluster(client, overrides)
    : withCredentialsOf(client, client.duplicate(overrides));
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

/**
 * ioredis 5 does not clear the timer of its `socketTimeout` when the socket is closed. It would then close the next, healthy
 * socket, and keep the process alive. ioredis 6 clears it.
 */
function clearSocketTimer(client: object): void {
  const timed = client as { socketTimeoutTimer?: NodeJS.Timeout | undefined };
  // eslint-disable-next-line no-restricted-globals -- ioredis set it with the global setTimeout.
  clearTimeout(timed.socketTimeoutTimer);
  timed.socketTimeoutTimer = undefined;
}

/** ioredis connects to each Sentinel to detect failovers, and prints an unhandled error event if one is down. */
function ignoreSentinelErrors(client: object): void {
  const { connector } = client as { connector?: { failoverDetector?: { sentinels: { client: Redis }[] } } };
  for (const sentinel of connector?.failoverDetector?.sentinels ?? []) {
    sentinel.client.on('error', () => undefined);
  }
}

/** In a Cluster, all keys of a script call must be on one slot. */
export const isCluster = (client: Redis | Cluster): client is Cluster => client.isCluster;

export function isReplicaError(cause: unknown): boolean {
  return /\b(READONLY|MASTERDOWN)\b|^ERR WAIT cannot be used with replica/.test(formatReason(cause));
}

export const replicaError = (cause?: unknown) =>
  new Error(
    'this Redis server is a replica, and locks are kept on the primary: give the address of the primary, or for a ' +
      'Sentinel group { options: { name, sentinels } }, which finds it',
    { cause },
  );

/** Replaces messages of ioredis that are about settings of this package, not of the user. */
export function toReadableError(cause: unknown): unknown {
  if (isReplicaError(cause)) return replicaError(cause);
  return isConnectionLost(cause)
    ? new Error('the connection to Redis was lost before it replied', { cause })
    : cause;
}

/** Whether the error of ioredis means that the connection was lost before the reply. */
export const isConnectionLost = (cause: unknown): boolean =>
  /^(Reached the max retries|Stream isn't writeable|Connection is closed)/.test(formatReason(cause));
