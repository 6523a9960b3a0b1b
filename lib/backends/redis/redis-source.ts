import { type Cluster, Redis, type RedisOptions } from 'ioredis';

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

/** In a Cluster, all keys of a script call must be on one slot. */
export const isCluster = (client: Redis | Cluster): client is Cluster => client.isCluster;

/** The prefix that ioredis adds to each key, also to the KEYS of a script. */
export const keyPrefixOf = (source: RedisSource): string => givenOptions(source).keyPrefix ?? '';

/** The database that ioredis will select; `undefined` in a Cluster, or if none is given. */
export const databaseOf = (source: RedisSource): number | undefined => {
  // The application may have called `client.select()`.
  const selected =
    'client' in source && !isCluster(source.client) ? source.client.condition?.select : undefined;
  if (selected !== undefined) return selected;
  const { db } = givenOptions(source) as { readonly db?: number | string | null };
  return typeof db === 'string' ? parseInt(db, 10) : (db ?? undefined);
};

/** The address of the server for messages, never with a user name or password. */
export const addressOf = (source: RedisSource): string => {
  const { host = 'localhost', port = 6379, path } = givenOptions(source);
  const address = path ?? (host.includes(':') ? `[${host}]:${port}` : `${host}:${port}`);
  const database = databaseOf(source) ?? 0;
  return database === 0 ? address : `${address}/${database}`;
};

const givenOptions = (source: RedisSource): RedisOptions =>
  'client' in source ? source.client.options : optionsOf(source);

/** A URL may contain options too, so ioredis parses it. */
export const optionsOf = (source: Exclude<RedisSource, { client: unknown }>): RedisOptions =>
  'url' in source ? new Redis(source.url, { lazyConnect: true }).options : source.options;

/** The database and the key prefix as one name, without a space, which separates names in the server list of a quorum. */
export const keySpaceOf = (source: RedisSource) =>
  `${databaseOf(source) ?? 0}/${Buffer.from(keyPrefixOf(source)).toString('base64url')}`;
