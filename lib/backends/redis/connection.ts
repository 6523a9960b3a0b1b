import { type Cluster, Redis, type RedisOptions } from 'ioredis';
import { systemClock } from '../../core/clock.js';
import { formatReason } from '../../core/format.js';
import { readClusterCredentialsOf, readCredentialsOf } from './credentials.js';
import type { ScriptRunner } from './single/commands.js';
import { SilenceDetector } from './silence-detector.js';

/** From where our own connection is made. Exactly one of the three. */
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

/** What also answers how many replicas have what this very connection has written. */
export interface ServerClient extends ScriptRunner {
  wait(count: number, timeoutMs: number): Promise<number>;
  info(section: string): Promise<string>;
}

/**
 * After such a silence with a question open, another connection is made beside it: soon enough for a question that nobody
 * waits for to be asked again over that one.
 */
const SUSPICIOUS_SILENCE_MS = 500;
/** After such a silence it is given up, also if no other can be made. */
const MAX_SILENCE_MS = 3_000;
const MAX_RECONNECT_PAUSE_MS = 500;
/** Nobody waits longer for an attempt to connect, which may go on: a server that loads its data, silent Sentinels. */
const MAX_CONNECT_ATTEMPT_MS = 5_000;
/** A Sentinel that is silent for so long is passed over. */
const SENTINEL_TIMEOUT_MS = 1_000;
/** ioredis tries it 16 times. */
const RETRY_AFTER_MS = 10;
/** After so long an idle connection asks whether the other end is still there: a host may vanish without a word. */
const KEEP_ALIVE_MS = 5_000;

/**
 * Commands must not wait in queues, nor be sent twice: a lock that is granted after its asker gave up would belong to
 * nobody.
 */
const CONNECTION_OPTIONS = {
  lazyConnect: true,
  enableOfflineQueue: false,
  autoResendUnfulfilledCommands: false,
  maxRetriesPerRequest: 0,
  enableAutoPipelining: false,
  // After a failover behind one address, the old connection may still lead to what is now a replica.
  reconnectOnError: isReplicaError,
  // Locks live on the primary, also for a client that is meant to read from replicas.
  role: 'master',
  readOnly: false,
  sentinelCommandTimeout: SENTINEL_TIMEOUT_MS,
  // A primary that was only frozen or cut off goes on as one for a while after another has taken over.
  failoverDetector: true,
  socketTimeout: MAX_SILENCE_MS,
  // ioredis waits so long for a socket to end, also for one that has ended, and keeps the process alive meanwhile.
  disconnectTimeout: 100,
  keepAlive: KEEP_ALIVE_MS,
  // A server that reads its data guesses how long it will take, and ioredis waits for so long, also after the end.
  maxLoadingRetryTime: MAX_RECONNECT_PAUSE_MS,
  retryStrategy: (attempts: number) => Math.min(attempts * 50, MAX_RECONNECT_PAUSE_MS),
} satisfies RedisOptions;

/** What tells that an attempt to connect has ended. */
const ATTEMPT_EVENTS = ['ready', 'close', 'end'] as const;

/** An attempt to connect that is under way. */
interface ConnectAttempt {
  readonly outcome: Promise<ServerClient>;
  /** Looks how it went; nobody waits for it after that. */
  readonly settle: () => void;
}

/** Our own connection: opened at the first question, closed by us alone, and opened again when asked after that. */
export class Connection {
  readonly #source: RedisSource;
  readonly #maxServerWaitMs: number | undefined;
  readonly #silenceDetector: SilenceDetector;
  #client: Redis | Cluster | undefined;
  /** Takes over if it answers before the one that is silent. */
  #spare: Redis | undefined;
  #attempt: ConnectAttempt | undefined;
  #lastError: Error | undefined;
  /** That the server is a replica, until the connection is made anew for that reason. */
  #replicaError: Error | undefined;

  /** A request may take up to `longestWaitMs` in the server. */
  constructor(source: RedisSource, maxServerWaitMs?: number) {
    this.#source = source;
    this.#maxServerWaitMs = maxServerWaitMs;
    this.#silenceDetector = new SilenceDetector(SUSPICIOUS_SILENCE_MS + (maxServerWaitMs ?? 0), () =>
      this.#openSpare(),
    );
  }

  /** The client, if it can be asked now. */
  get ready(): ServerClient | undefined {
    return this.#client?.status === 'ready' ? this.#client : undefined;
  }

  /** The client, once it can be asked. Rejects when the attempt to connect that is under way fails, or takes too long. */
  open(): Promise<ServerClient> {
    this.#client ??= this.#createClient();
    if (this.#client.status === 'ready') return Promise.resolve(this.#client);
    this.#attempt ??= this.#connect(this.#client);
    return this.#attempt.outcome;
  }

  /** Watches that the answer comes. Rejects as a lost connection does, if another one answers and this one does not. */
  watch<T>(result: Promise<T>): Promise<T> {
    return this.#silenceDetector.watch(result);
  }

  /** Why a question failed, for people. */
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
    // Between two tries to reconnect, the client tells nobody that it has ended.
    this.#attempt?.settle();
  }

  #connect(client: Redis | Cluster): ConnectAttempt {
    let settle = (): void => undefined;
    const outcome = new Promise<ServerClient>((resolve, reject) => {
      settle = (): void => {
        for (const event of ATTEMPT_EVENTS) client.off(event, settle);
        timer.cancel();
        this.#attempt = undefined;
        const { ready } = this; // Another one may have taken over.
        if (ready) {
          this.#lastError = undefined;
          resolve(ready);
        } else reject(this.#failure());
      };
    });
    const timer = systemClock.after(MAX_CONNECT_ATTEMPT_MS, settle);
    for (const event of ATTEMPT_EVENTS) client.on(event, settle);
    // Its outcome comes as an event too, and the events also tell of later attempts.
    if (client.status === 'wait' || client.status === 'end') client.connect().catch(() => undefined);
    return { outcome, settle };
  }

  /** A host may have vanished without a word. In a Cluster others than the silent one would suffer. */
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
    // Where the user switched the ready check off, nobody has answered yet. A refusal is an answer.
    spare.once('ready', () => void spare.ping().then(settle, settle));
    spare.once('close', settle);
    spare.connect().catch(() => undefined); // Its outcome comes as an event too.
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
    // The error of two addresses at once has no message.
    const reason = error?.message || error?.code || 'it does not answer, or the connection was closed';
    return new Error(`Redis cannot be reached: ${reason}`, { cause: this.#lastError });
  }

  #createClient(): Redis | Cluster {
    const client = requestConnection(this.#source, this.#maxServerWaitMs);
    client.on('error', (error: Error) => {
      // That a connection was closed says less than why.
      if (!this.#lastError || toReadableError(error) === error) this.#lastError = error;
    });
    client.on('ready', () => (this.#replicaError = undefined));
    return client;
  }
}

function end(client: Redis | Cluster): void {
  client.disconnect();
  // If it was just connecting, ioredis opens connections to the Sentinels all the same.
  client.on('failoverSubscribed', () => client.disconnect());
}

/**
 * ioredis 5 leaves the timer of its `socketTimeout` running when the socket has gone: it would end the next, healthy
 * one, and keep a process alive that has closed everything. (ioredis 6 clears it.)
 */
function clearSocketTimer(client: object): void {
  const timed = client as { socketTimeoutTimer?: NodeJS.Timeout | undefined };
  // eslint-disable-next-line no-restricted-globals -- ioredis set it, with the global one.
  clearTimeout(timed.socketTimeoutTimer);
  timed.socketTimeoutTimer = undefined;
}

/** ioredis makes a connection to each Sentinel to hear of failovers, and prints it when one of them is down. */
function ignoreSentinelErrors(client: object): void {
  const { connector } = client as { connector?: { failoverDetector?: { sentinels: { client: Redis }[] } } };
  for (const sentinel of connector?.failoverDetector?.sentinels ?? []) {
    sentinel.client.on('error', () => undefined);
  }
}

type CommandError = Error & { command?: { readonly name: string } };

/** ioredis hangs the command on an error, and that of AUTH holds the password. */
function removeCommand(error: CommandError): void {
  delete error.command;
}

/** A connection for requests, which does not connect by itself. One of them may take so long in the server. */
export const requestConnection = (source: RedisSource, maxServerWaitMs = 0): Redis | Cluster =>
  connectionTo(source, { ...CONNECTION_OPTIONS, socketTimeout: MAX_SILENCE_MS + maxServerWaitMs });

/** A connection for calls alone: it may stay silent, and its channel is no key. */
export const notificationConnection = (source: RedisSource): Redis | Cluster =>
  connectionTo(source, {
    ...CONNECTION_OPTIONS,
    enableOfflineQueue: true,
    autoResubscribe: false,
    keyPrefix: '',
    failoverDetector: false,
  });

/** What ioredis puts before each key, also in what a script sees. */
export const keyPrefixOf = (source: RedisSource): string => givenOptions(source).keyPrefix ?? '';

/** The database that ioredis will select; `undefined` in a Cluster, and where none is given. */
export const databaseOf = (source: RedisSource): number | undefined => {
  const { db } = givenOptions(source) as { readonly db?: number | string | null };
  return typeof db === 'string' ? parseInt(db, 10) : (db ?? undefined);
};

/** Where the server is, for people: never with the name of a user or a password. */
export const addressOf = (source: RedisSource): string => {
  const { host = 'localhost', port = 6379, path, db = 0 } = givenOptions(source);
  const address = path ?? (host.includes(':') ? `[${host}]:${port}` : `${host}:${port}`);
  return db === 0 ? address : `${address}/${db}`;
};

const givenOptions = (source: RedisSource): RedisOptions =>
  'client' in source ? source.client.options : optionsOf(source);

/** A URL may hold options as well. */
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
  // Before anybody else hears of it.
  client.on('error', (error: CommandError) => {
    // ioredis would go on with database 0, and so lock what others do not see. A Cluster has no other.
    const isSelect = error.command?.name === 'select' && !/cluster mode/.test(error.message);
    removeCommand(error);
    if (isSelect) client.disconnect(true);
  });
  client.on('connect', () => ignoreSentinelErrors(client));
  client.on('close', () => clearSocketTimer(client));
  // One of many in a Cluster.
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

/** In a Cluster each script call must stay on one slot. */
export const isCluster = (client: Redis | Cluster): client is Cluster => client.isCluster;

/** @throws Error if the server is a replica */
export async function checkIsPrimary(server: ServerClient): Promise<void> {
  // Where INFO is forbidden, the first request will tell.
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

/** ioredis speaks of settings that are ours, not the user's. */
export function toReadableError(cause: unknown): unknown {
  if (isReplicaError(cause)) return replicaError(cause);
  return isConnectionLost(cause)
    ? new Error('the connection to Redis was lost before it answered', { cause })
    : cause;
}

/** Whether ioredis says that the connection was lost before it answered. */
export const isConnectionLost = (cause: unknown): boolean =>
  /^(Reached the max retries|Stream isn't writeable|Connection is closed)/.test(formatReason(cause));
