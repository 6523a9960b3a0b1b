import type { Cluster, Redis, RedisOptions } from 'ioredis';

const NAMES = ['username', 'password', 'sentinelUsername', 'sentinelPassword'] as const;

type Credentials = Pick<RedisOptions, (typeof NAMES)[number]>;
type Name = (typeof NAMES)[number];

/**
 * Makes a duplicated client read the credentials of the application's client. Credentials may be rotated while a process
 * runs, and ioredis reads its options at each connect.
 */
export function readCredentialsOf(source: () => Credentials | undefined, options: Credentials): void {
  for (const name of NAMES) readFrom(source, options, name);
}

/** The same for a Cluster, in which each node has a connection of its own. */
export function readClusterCredentialsOf(source: Cluster, duplicate: Cluster, initial: Credentials): void {
  duplicate.on('+node', ({ options }: Redis) => {
    for (const name of NAMES) {
      // Otherwise they were given for this node only.
      const isShared = (options[name] ?? null) === (initial[name] ?? null);
      if (isShared) readFrom(() => source.options.redisOptions, options, name);
    }
  });
}

function readFrom(source: () => Credentials | undefined, options: Credentials, name: Name): void {
  Object.defineProperty(options, name, { get: () => source()?.[name], enumerable: true, configurable: true });
}
