import type { Cluster, Redis, RedisOptions } from 'ioredis';

const NAMES = ['username', 'password', 'sentinelUsername', 'sentinelPassword'] as const;

type Credentials = Pick<RedisOptions, (typeof NAMES)[number]>;
type Name = (typeof NAMES)[number];

/**
 * Credentials are rotated while a process runs. ioredis reads them from its options at each connect, so our connection
 * reads what the application has by then.
 */
export function readCredentialsOf(source: () => Credentials | undefined, options: Credentials): void {
  for (const name of NAMES) readFrom(source, options, name);
}

/** The same for the nodes of a Cluster, which are connections of their own. */
export function readClusterCredentialsOf(source: Cluster, duplicate: Cluster, initial: Credentials): void {
  duplicate.on('+node', ({ options }: Redis) => {
    for (const name of NAMES) {
      // Else they were given for this very node.
      const isShared = (options[name] ?? null) === (initial[name] ?? null);
      if (isShared) readFrom(() => source.options.redisOptions, options, name);
    }
  });
}

function readFrom(source: () => Credentials | undefined, options: Credentials, name: Name): void {
  Object.defineProperty(options, name, { get: () => source()?.[name], enumerable: true, configurable: true });
}
