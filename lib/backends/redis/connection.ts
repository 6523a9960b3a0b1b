import { type Cluster, Redis, type RedisOptions } from 'ioredis';
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
  reconnectOnError: (error: Error) => error.message.startsWith('READONLY'),
  socketTimeout: LONGEST_SILENCE_MS,
  retryStrategy: (attempts: number) => Math.min(attempts * 50, LONGEST_RECONNECT_PAUSE_MS),
} satisfies RedisOptions;

/** Our own connection: opened at the first question, closed by us alone. */
export class Connection {
  readonly #source: RedisSource;
  #client: Redis | Cluster | undefined;
  #opening: Promise<ScriptRunner> | undefined;
  #lastError: Error | undefined;

  constructor(source: RedisSource) {
    this.#source = source;
  }

  /** The client, once it can be asked. Rejects when the attempt to connect that is under way fails. */
  open(): Promise<ScriptRunner> {
    this.#client ??= this.#make();
    if (this.#client.status === 'ready') return Promise.resolve(this.#client);
    this.#opening ??= this.#connect(this.#client).finally(() => (this.#opening = undefined));
    return this.#opening;
  }

  close(): void {
    this.#client?.disconnect();
    this.#client = undefined;
  }

  async #connect(client: Redis | Cluster): Promise<ScriptRunner> {
    const outcome = new Promise<void>((resolve, reject) => {
      const settle = () => {
        for (const event of ['ready', 'close', 'end']) client.off(event, settle);
        if (client.status === 'ready') resolve();
        else
          reject(
            new Error(`Redis cannot be reached: ${this.#lastError?.message ?? 'the connection was closed'}`, {
              cause: this.#lastError,
            }),
          );
      };
      for (const event of ['ready', 'close', 'end']) client.on(event, settle);
    });
    // Its outcome comes as an event too, and the events also tell of later attempts.
    if (client.status === 'wait' || client.status === 'end') client.connect().catch(() => undefined);
    await outcome;
    return client;
  }

  #make(): Redis | Cluster {
    const client = duplicate(this.#source);
    client.on('error', (error: Error) => (this.#lastError = error));
    return client;
  }
}

function duplicate(source: RedisSource): Redis | Cluster {
  if ('url' in source) return new Redis(source.url, OURS);
  if ('options' in source) return new Redis({ ...source.options, ...OURS });
  const { client } = source;
  if (!isCluster(client)) return client.duplicate(OURS);
  const { lazyConnect, enableOfflineQueue, retryStrategy, ...redisOptions } = OURS;
  return client.duplicate(undefined, {
    lazyConnect,
    enableOfflineQueue,
    clusterRetryStrategy: retryStrategy,
    scaleReads: 'master',
    redisOptions: { ...client.options.redisOptions, ...redisOptions },
  });
}

/** In a Cluster each script call must stay on one slot. */
export const isCluster = (client: Redis | Cluster): client is Cluster => client.isCluster;
