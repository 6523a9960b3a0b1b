import { type Cluster, Redis, type RedisOptions } from 'ioredis';
import { systemClock } from '../../core/clock.js';
import { formatReason } from '../../core/format.js';
import { readClusterCredentialsOf, readCredentialsOf } from './credentials.js';
import type { ScriptRunner } from './script-runner.js';
import { SilenceDetector } from './silence-detector.js';

/** Where to connect to: exactly one of the three. The backend always opens a connection of its own. */
export type RedisSource =
  | {
      /** A `Redis` or `Cluster` client of ioredis. It is duplicated, and neither changed nor closed. */
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
export interface ServerClient extends ScriptRunner {
  wait(count: number, timeoutMs: number): Promise<number>;
  info(section: string): Promise<string>;
}

/**
 * After this time without any reply to an open request, a spare connection is opened. Early enough that a renewal, which no
 * caller waits for, can be repeated over it.
 */
const SUSPICIOUS_SILENCE_MS = 500;
/** After this time without any reply, the connection is closed even if no other one can be opened. */
const MAX_SILENCE_MS = 3_000;
const MAX_RECONNECT_PAUSE_MS = 500;
/** How long to wait for an attempt to connect. The attempt itself may go on: a server loads its data, Sentinels are silent. */
const MAX_CONNECT_ATTEMPT_MS = 5_000;
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
const CONNECTION_OPTIONS = {
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
  retryStrategy: (attempts: number) => Math.min(attempts * 50, MAX_RECONNECT_PAUSE_MS),
} satisfies RedisOptions;

/** The events that end an attempt to connect. */
const ATTEMPT_EVENTS = ['ready', 'close', 'end'] as const;

/** An attempt to connect that is in progress. */
interface ConnectAttempt {
  readonly outcome: Promise<ServerClient>;
  /** Settles `outcome` by the present state of the client. */
  readonly settle: () => void;
}

/** The backend's own connection. It is opened by the first request, and again by a request after `close`. */
export class Connection {
  readonly #source: RedisSource;
  readonly #maxServerWaitMs: number | undefined;
  readonly #silenceDetector: SilenceDetector;
  #client: Redis | Cluster | undefined;
  /** Replaces the silent client if it replies first. */
  #spare: Redis | undefined;
  #attempt: ConnectAttempt | undefined;
  #lastError: Error | undefined;
  /** Set when the server turned out to be a replica, until ioredis has reconnected for that reason. */
  #replicaError: Error | undefined;

  /** The server may spend up to `maxServerWaitMs` on a request, in WAIT. */
  constructor(source: RedisSource, maxServerWaitMs?: number) {
    this.#source = source;
    this.#maxServerWaitMs = maxServerWaitMs;
    this.#silenceDetector = new SilenceDetector(SUSPICIOUS_SILENCE_MS + (maxServerWaitMs ?? 0), () =>
      this.#openSpare(),
    );
  }

  /** The client, if it is connected now. */
  get ready(): ServerClient | undefined {
    return this.#client?.status === 'ready' ? this.#client : undefined;
  }

  /**
   * The client, once it is connected.
   *
   * @throws Error if the attempt to connect fails, or takes longer than `MAX_CONNECT_ATTEMPT_MS`
   */
  open(): Promise<ServerClient> {
    this.#client ??= this.#createClient();
    if (this.#client.status === 'ready') return Promise.resolve(this.#client);
    this.#attempt ??= this.#connect(this.#client);
    return this.#attempt.outcome;
  }

  /** Watches an open request. If its connection is silent and a spare one replies, it rejects like a request of a lost connection. */
  watch<T>(result: Promise<T>): Promise<T> {
    return this.#silenceDetector.watch(result);
  }

  /** A readable error for a failed request. */
  explain(cause: unknown): unknown {
    if (isReplicaError(cause)) return (this.#replicaError = replicaError(cause));
    const readable = toReadableError(cause);
    return readable === cause ? cause : (this.#replicaError ?? readable);
  }

  close(): void {
    const client = this.#client;
    this.#client = undefined;
    if (client) end(client);
    this.#silenceDetector.stop();
    this.#dropSpare();
    // Between two attempts to reconnect, ioredis emits no event when it is disconnected.
    this.#attempt?.settle();
  }

  #connect(client: Redis | Cluster): ConnectAttempt {
    let settle = (): void => undefined;
    const outcome = new Promise<ServerClient>((resolve, reject) => {
      settle = (): void => {
        for (const event of ATTEMPT_EVENTS) client.off(event, settle);
        timer.cancel();
        this.#attempt = undefined;
        const { ready } = this; // Perhaps the spare client by now.
        if (ready) {
          this.#lastError = undefined;
          resolve(ready);
        } else reject(this.#failure());
      };
    });
    const timer = systemClock.after(MAX_CONNECT_ATTEMPT_MS, settle);
    for (const event of ATTEMPT_EVENTS) client.on(event, settle);
    // The events report the outcome too, also that of later attempts.
    if (client.status === 'wait' || client.status === 'end') client.connect().catch(() => undefined);
    return { outcome, settle };
  }

  /** A host may have vanished without closing the connection. Not in a Cluster, where it would affect healthy nodes too. */
  #openSpare(): void {
    if (this.#spare || !this.#client || isCluster(this.#client)) return;
    const spare = this.#createClient() as Redis;
    this.#spare = spare;
    const settle = (): void => {
      if (this.#spare !== spare) return;
      if (spare.status === 'ready' && (this.#silenceDetector.isSilentTooLong || !this.ready))
        this.#takeSpare(spare);
      else this.#dropSpare();
    };
    // Without ioredis' ready check, `ready` does not prove that the server replies, so PING does. An error reply is enough.
    spare.once('ready', () => void spare.ping().then(settle, settle));
    spare.once('close', settle);
    spare.connect().catch(() => undefined); // The events report the outcome too.
  }

  #takeSpare(spare: Redis): void {
    const silent = this.#client;
    this.#spare = undefined;
    this.#client = spare;
    if (silent) end(silent);
    this.#attempt?.settle();
  }

  #dropSpare(): void {
    if (this.#spare) end(this.#spare);
    this.#spare = undefined;
  }

  #failure(): Error {
    const error: NodeJS.ErrnoException | undefined = this.#lastError;
    // An AggregateError of two addresses has no message.
    const reason = error?.message || error?.code || 'no reply arrived, or the connection was closed';
    return new Error(`Redis cannot be reached: ${reason}`, { cause: this.#lastError });
  }

  #createClient(): Redis | Cluster {
    const client = requestConnection(this.#source, this.#maxServerWaitMs);
    client.on('error', (error: Error) => {
      // Keeps the reason of a failure; that the connection was closed says less.
      if (!this.#lastError || toReadableError(error) === error) this.#lastError = error;
    });
    client.on('ready', () => (this.#replicaError = undefined));
    return client;
  }
}

function end(client: Redis | Cluster): void {
  client.disconnect();
  // If it was still connecting, ioredis opens connections to the Sentinels even after that.
  client.on('failoverSubscribed', () => client.disconnect());
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

type CommandError = Error & { command?: { readonly name: string } };

/** ioredis adds the command to an error, and that of AUTH contains the password. */
function removeCommand(error: CommandError): void {
  delete error.command;
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

type ConnectionOptions = Omit<typeof CONNECTION_OPTIONS, 'enableOfflineQueue' | 'failoverDetector'> & {
  enableOfflineQueue: boolean;
  failoverDetector: boolean;
  autoResubscribe?: false;
  keyPrefix?: string;
};

function connectionTo(source: RedisSource, overrides: ConnectionOptions): Redis | Cluster {
  const client = duplicate(source, overrides);
  // Must be the first listener, so that no other one sees the command.
  client.on('error', (error: CommandError) => {
    // ioredis would go on with database 0, where other processes do not see the locks. A Cluster has only database 0.
    const isSelect = error.command?.name === 'select' && !/cluster mode/.test(error.message);
    removeCommand(error);
    if (isSelect) client.disconnect(true);
  });
  client.on('connect', () => ignoreSentinelErrors(client));
  client.on('close', () => clearSocketTimer(client));
  // A node of a Cluster has left.
  client.on('-node', clearSocketTimer);
  return client;
}

function duplicate(source: RedisSource, overrides: ConnectionOptions): Redis | Cluster {
  if ('url' in source) return new Redis({ ...optionsOf(source), ...overrides });
  if ('options' in source) {
    const single = new Redis({ ...source.options, ...overrides });
    readCredentialsOf(() => source.options, single.options);
    return single;
  }
  const { client } = source;
  if (!isCluster(client)) {
    const single = client.duplicate(overrides);
    readCredentialsOf(() => client.options, single.options);
    return single;
  }
  const { lazyConnect, enableOfflineQueue, retryStrategy, keyPrefix, ...redisOptions } = overrides;
  const nodeOptions = { ...client.options.redisOptions, ...redisOptions };
  const cluster = client.duplicate(undefined, {
    lazyConnect,
    enableOfflineQueue,
    ...(keyPrefix !== undefined && { keyPrefix }),
    clusterRetryStrategy: retryStrategy,
    retryDelayOnTryAgain: RETRY_AFTER_MS,
    scaleReads: 'master',
    redisOptions: nodeOptions,
  });
  readClusterCredentialsOf(client, cluster, nodeOptions);
  return cluster;
}

/** In a Cluster, all keys of a script call must be on one slot. */
export const isCluster = (client: Redis | Cluster): client is Cluster => client.isCluster;

/** @throws Error if the server is a replica */
export async function checkIsPrimary(server: ServerClient): Promise<void> {
  // If INFO is forbidden, the first request will fail with READONLY.
  const info = await server.info('replication').catch(() => '');
  if (/^role:slave/m.test(info)) throw replicaError();
}

function isReplicaError(cause: unknown): boolean {
  return /\b(READONLY|MASTERDOWN)\b|^ERR WAIT cannot be used with replica/.test(formatReason(cause));
}

const replicaError = (cause?: unknown) =>
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
