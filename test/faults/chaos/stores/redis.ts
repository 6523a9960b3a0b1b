import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import type { Redis } from 'ioredis';
import { startRedis } from '../../../services/redis-server.js';
import type { StoredEntry } from '../checkers/orphans.js';
import { RestartableServer } from '../../injection/restartable-server.js';
import { StoreClock } from '../../injection/store-clock.js';
import { withRedisServer, contentsOf, redisStoreOperations } from './redis-operations.js';
import type { StoreUnderTest, StoreOptions } from './store-under-test.js';

/** What is answered is on the disk, so a restart forgets nothing. */
const PERSISTENT = ['--appendonly', 'yes', '--appendfsync', 'always'];

/** One Redis server that keeps its data. */
export async function openRedisStore({ withClock }: StoreOptions): Promise<StoreUnderTest> {
  const clock = withClock ? await StoreClock.open() : undefined;
  const server = await RestartableServer.start(startRedis, {
    args: PERSISTENT,
    ...(clock && { env: clock.env }),
  });
  const run = <T>(work: (redis: Redis) => Promise<T>) => withRedisServer(server.service.url, work);
  return {
    name: 'redis',
    servers: [server],
    clock,
    storeAt: ([port]) => ({ redis: `redis://127.0.0.1:${port}` }),
    storedEntries: (namespace) => run((redis) => storedEntriesIn(redis, namespace)),
    loseData: () => rm(join(server.service.dataDir, 'appendonlydir'), { recursive: true, force: true }),
    ...redisStoreOperations(run),
    async close() {
      await server.close();
      clock?.close();
    },
  };
}

async function storedEntriesIn(redis: Redis, namespace: string): Promise<StoredEntry[]> {
  const found: StoredEntry[] = [];
  const { nowUs, entries } = await contentsOf(redis);
  for (const { name, isForever } of entries) {
    const [, key = name, part] = /^\{(.*)\}:(\w+)$/.exec(name) ?? [];
    if (isForever) found.push({ key: name, what: 'forever' });
    if (!key.startsWith(`${namespace}:`)) continue;
    const plainKey = key.slice(namespace.length + 1);
    if (part === 'lock' && isHeld(await redis.get(name), nowUs)) found.push({ key: plainKey, what: 'grant' });
    if (part === 'line' && (await redis.zcard(name)) > 0) found.push({ key: plainKey, what: 'line' });
  }
  return found;
}

/** For the columns of a lock see the script. */
const isHeld = (lock: string | null, nowUs: number): boolean =>
  lock !== null && Number(lock.slice(19, 35)) > nowUs && Number(lock.slice(36, 52)) > 0;
