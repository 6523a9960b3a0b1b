import { setTimeout as sleep } from 'node:timers/promises';
import { Redis } from 'ioredis';

const FEW_CLIENTS = 4;
const MANY_CLIENTS = 10_000;

/** Asks over a connection of its own, as the last one may have been killed. */
export async function withRedisServer<T>(url: string, work: (redis: Redis) => Promise<T>): Promise<T> {
  const redis = new Redis(url, { lazyConnect: true, retryStrategy: () => null });
  redis.on('error', () => undefined);
  await redis.connect();
  try {
    return await work(redis);
  } finally {
    redis.disconnect();
  }
}

/** Asks one server, or several the same. */
export type RunOnServers = <T>(work: (redis: Redis) => Promise<T>) => Promise<unknown>;

/** What befalls every kind of store that is made of Redis. */
export const redisStoreOperations = (run: RunOnServers) => ({
  deleteAll: () => run((redis) => redis.flushall()),
  killSessions: () => run((redis) => redis.call('CLIENT', 'KILL', 'SKIPME', 'yes')),
  killNotificationSessions: () => run((redis) => redis.call('CLIENT', 'KILL', 'TYPE', 'pubsub')),
  stall: (forMs: number) =>
    run(async (redis) => {
      await redis.call('CLIENT', 'PAUSE', Math.round(forMs), 'ALL');
      await sleep(forMs);
    }),
  exhaustConnections: (forMs: number) =>
    run(async (redis) => {
      await redis.config('SET', 'maxclients', FEW_CLIENTS);
      await redis.call('CLIENT', 'KILL', 'SKIPME', 'yes');
      await sleep(forMs);
      await redis.config('SET', 'maxclients', MANY_CLIENTS);
    }),
  flushScripts: () => run((redis) => redis.script('FLUSH')),
});

/** All keys with what they hold, and the time of the server in µs. */
export async function contentsOf(redis: Redis) {
  const [seconds, microseconds] = await redis.time();
  const entries: { readonly name: string; readonly isForever: boolean }[] = [];
  for await (const names of redis.scanStream({ match: '*', count: 1_000 })) {
    for (const name of names as string[]) entries.push({ name, isForever: (await redis.pttl(name)) === -1 });
  }
  return { nowUs: Number(seconds) * 1e6 + Number(microseconds), entries };
}
