import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import type { Redis } from 'ioredis';
import { startRedis } from '../../services/redis-server.js';
import type { Kept } from '../checkers/orphans.js';
import { Server } from '../server.js';
import { StoreClock } from '../store-clock.js';
import { askRedisServer, contentsOf, redisAfflictions } from './ask-redis-server.js';
import type { World, WorldOptions } from './world.js';

/** What is answered is on the disk, so a restart forgets nothing. */
const PERSISTENT = ['--appendonly', 'yes', '--appendfsync', 'always'];

/** One Redis server that keeps its data. */
export async function redisWorld({ withClock }: WorldOptions): Promise<World> {
  const clock = withClock ? await StoreClock.open() : undefined;
  const server = await Server.start(startRedis, { args: PERSISTENT, ...(clock && { env: clock.env }) });
  const ask = <T>(question: (redis: Redis) => Promise<T>) => askRedisServer(server.service.url, question);
  return {
    name: 'redis',
    servers: [server],
    clock,
    storeAt: ([port]) => ({ redis: `redis://127.0.0.1:${port}` }),
    kept: (namespace) => ask((redis) => keptIn(redis, namespace)),
    loseData: () => rm(join(server.service.dataDir, 'appendonlydir'), { recursive: true, force: true }),
    ...redisAfflictions(ask),
    async close() {
      await server.close();
      clock?.close();
    },
  };
}

async function keptIn(redis: Redis, namespace: string): Promise<Kept[]> {
  const kept: Kept[] = [];
  const { nowUs, entries } = await contentsOf(redis);
  for (const { name, isForever } of entries) {
    const [, key = name, part] = /^\{(.*)\}:(\w+)$/.exec(name) ?? [];
    if (isForever) kept.push({ key: name, what: 'forever' });
    if (!key.startsWith(`${namespace}:`)) continue;
    const plainKey = key.slice(namespace.length + 1);
    if (part === 'lock' && isHeld(await redis.get(name), nowUs)) kept.push({ key: plainKey, what: 'grant' });
    if (part === 'line' && (await redis.zcard(name)) > 0) kept.push({ key: plainKey, what: 'line' });
  }
  return kept;
}

/** For the columns of a lock see the script. */
const isHeld = (lock: string | null, nowUs: number): boolean =>
  lock !== null && Number(lock.slice(19, 35)) > nowUs && Number(lock.slice(36, 52)) > 0;
