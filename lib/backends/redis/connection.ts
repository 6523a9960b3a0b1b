import { type Cluster, Redis, type RedisOptions } from 'ioredis';
import { reasonOf } from '../../core/shown.js';
import type { ScriptRunner } from './script.js';

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

/** A connection that stays silent so long with a question open is given up, and made anew. */
const LONGEST_SILENCE_MS = 6_000;
const LONGEST_RECONNECT_PAUSE_MS = 500;

/**
 * Commands must not wait in queues, nor be sent twice: a lock that is granted after its asker gave up would belong to
 * nobody.
 */
const OURS = {
  lazyConnect: true,
  enableOfflineQueue: false,
  autoResendUnfulfilledCommands: false,
  maxRetriesPerRequest: 0,
  enableAutoPipelining: false,
  // After a failover behind one address, the old connection may still lead to what is now a replica.
  reconnectOnError: (error: Error) => /\bREADONLY\b/.test(error.message),
  socketTimeout: LONGEST_SILENCE_MS,
  // ioredis waits so long for a socket to end, also for one that has ended, and keeps the process alive meanwhile.
  disconnectTimeout: 100,
  retryStrategy: (attempts: number) => Math.min(attempts * 50, LONGEST_RECONNECT_PAUSE_MS),
} satisfies RedisOptions;

/** What tells that an attempt to connect has ended. */
const OUTCOMES = ['ready', 'close', 'end'] as const;

/** An attempt to connect that is under way. */
interface Attempt {
  readonly outcome: Promise<ScriptRunner>;
  /** Looks how it went; nobody waits for it after that. */
  readonly settle: () => void;
}

/** Our own connection: opened at the first question, closed by us alone, and opened again when asked after that. */
export class Connection {
  readonly #source: RedisSource;
  #client: Redis | Cluster | undefined;
  #attempt: Attempt | undefined;
  #lastError: Error | undefined;

  constructor(source: RedisSource) {
    this.#source = source;
  }

  /** The client, if it can be asked now. */
  get ready(): ScriptRunner | undefined {
    return this.#client?.status === 'ready' ? this.#client : undefined;
  }

  /** The client, once it can be asked. Rejects when the attempt to connect that is under way fails. */
  open(): Promise<ScriptRunner> {
    this.#client ??= this.#make();
    if (this.#client.status === 'ready') return Promise.resolve(this.#client);
    this.#attempt ??= this.#connect(this.#client);
    return this.#attempt.outcome;
  }

  close(): void {
    this.#client?.disconnect();
    this.#client = undefined;
    // Between two tries to reconnect, the client tells nobody that it has ended.
    this.#attempt?.settle();
  }

  #connect(client: Redis | Cluster): Attempt {
    let settle = (): void => undefined;
    const outcome = new Promise<ScriptRunner>((resolve, reject) => {
      settle = () => {
        for (const event of OUTCOMES) client.off(event, settle);
        this.#attempt = undefined;
        if (client.status === 'ready') resolve(client);
        else reject(this.#failure());
      };
    });
    for (const event of OUTCOMES) client.on(event, settle);
    // Its outcome comes as an event too, and the events also tell of later attempts.
    if (client.status === 'wait' || client.status === 'end') client.connect().catch(() => undefined);
    return { outcome, settle };
  }

  #failure(): Error {
    const reason = this.#lastError?.message ?? 'the connection was closed';
    return new Error(`Redis cannot be reached: ${reason}`, { cause: this.#lastError });
  }

  #make(): Redis | Cluster {
    const client = requestConnection(this.#source);
    client.on('error', (error: Error) => (this.#lastError = error));
    return client;
  }
}

/**
 * ioredis 5 leaves the timer of its `socketTimeout` running when the socket has gone: it would end the next, healthy
 * one, and keep a process alive that has closed everything. (ioredis 6 clears it.)
 */
function endSilence(client: object): void {
  const timed = client as { socketTimeoutTimer?: NodeJS.Timeout | undefined };
  clearTimeout(timed.socketTimeoutTimer);
  timed.socketTimeoutTimer = undefined;
}

/** A connection for requests, which does not connect by itself. */
export const requestConnection = (source: RedisSource): Redis | Cluster => connectionTo(source, OURS);

/** A connection for calls alone: it may stay silent, and its channel is no key. */
export const callConnection = (source: RedisSource): Redis | Cluster =>
  connectionTo(source, { ...OURS, enableOfflineQueue: true, autoResubscribe: false, keyPrefix: '' });

/** What ioredis puts before each key, also in what a script sees. */
export const keyPrefixOf = (source: RedisSource): string => {
  if ('client' in source) return source.client.options.keyPrefix ?? '';
  return optionsOf(source).keyPrefix ?? '';
};

/** A URL may hold options as well. */
const optionsOf = (source: Exclude<RedisSource, { client: unknown }>): RedisOptions =>
  'url' in source ? new Redis(source.url, { lazyConnect: true }).options : source.options;

type Ours = Omit<typeof OURS, 'enableOfflineQueue'> & {
  enableOfflineQueue: boolean;
  autoResubscribe?: false;
  keyPrefix?: string;
};

function connectionTo(source: RedisSource, ours: Ours): Redis | Cluster {
  const client = duplicate(source, ours);
  client.on('close', () => endSilence(client));
  return client;
}

function duplicate(source: RedisSource, ours: Ours): Redis | Cluster {
  if (!('client' in source)) return new Redis({ ...optionsOf(source), ...ours });
  const { client } = source;
  if (!isCluster(client)) return client.duplicate(ours);
  const { lazyConnect, enableOfflineQueue, retryStrategy, keyPrefix, ...redisOptions } = ours;
  return client.duplicate(undefined, {
    lazyConnect,
    enableOfflineQueue,
    ...(keyPrefix !== undefined && { keyPrefix }),
    clusterRetryStrategy: retryStrategy,
    scaleReads: 'master',
    redisOptions: { ...client.options.redisOptions, ...redisOptions },
  });
}

/** In a Cluster each script call must stay on one slot. */
export const isCluster = (client: Redis | Cluster): client is Cluster => client.isCluster;

/** ioredis speaks of settings that are ours, not the user's. */
export function plainly(cause: unknown): unknown {
  const isLost = /^(Reached the max retries|Stream isn't writeable|Connection is closed)/.test(
    reasonOf(cause),
  );
  return isLost ? new Error('the connection to Redis was lost before it answered', { cause }) : cause;
}
