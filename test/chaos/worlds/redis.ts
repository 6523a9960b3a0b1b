import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { Redis } from 'ioredis';
import { startRedis } from '../../services/redis-server.js';
import type { Kept } from '../checkers/orphans.js';
import { Server } from '../server.js';
import { StoreClock } from '../store-clock.js';
import type { World, WorldOptions } from './world.js';

/** What is answered is on the disk, so a restart forgets nothing. */
const PERSISTENT = ['--appendonly', 'yes', '--appendfsync', 'always'];
const FEW_CLIENTS = 4;
const MANY_CLIENTS = 10_000;

/** One Redis server that keeps its data. */
export async function redisWorld({ withClock }: WorldOptions): Promise<World> {
  const clock = withClock ? await StoreClock.open() : undefined;
  const server = await Server.start(startRedis, { args: PERSISTENT, ...(clock && { env: clock.env }) });
  const ask = <T>(question: (redis: Redis) => Promise<T>) => askRedis(server.service.url, question);
  return {
    name: 'redis',
    servers: [server],
    clock,
    storeAt: ([port]) => ({ redis: `redis://127.0.0.1:${port}` }),
    kept: (namespace) => ask((redis) => keptIn(redis, namespace)),
    forget: () => ask((redis) => redis.flushall()),
    loseData: () => rm(join(server.service.dataDir, 'appendonlydir'), { recursive: true, force: true }),
    killSessions: () => ask((redis) => redis.call('CLIENT', 'KILL', 'SKIPME', 'yes')),
    killCalls: () => ask((redis) => redis.call('CLIENT', 'KILL', 'TYPE', 'pubsub')),
    stall: (forMs) =>
      ask(async (redis) => {
        await redis.call('CLIENT', 'PAUSE', Math.round(forMs), 'ALL');
        await sleep(forMs);
      }),
    crowd: (forMs) =>
      ask(async (redis) => {
        await redis.config('SET', 'maxclients', FEW_CLIENTS);
        await redis.call('CLIENT', 'KILL', 'SKIPME', 'yes');
        await sleep(forMs);
        await redis.config('SET', 'maxclients', MANY_CLIENTS);
      }),
    flushScripts: () => ask((redis) => redis.script('FLUSH')),
    async close() {
      await server.close();
      clock?.close();
    },
  };
}

/** Asks over a connection of its own, as the last one may have been killed. */
async function askRedis<T>(url: string, question: (redis: Redis) => Promise<T>): Promise<T> {
  const redis = new Redis(url, { lazyConnect: true, retryStrategy: () => null });
  redis.on('error', () => undefined);
  await redis.connect();
  try {
    return await question(redis);
  } finally {
    redis.disconnect();
  }
}

async function keptIn(redis: Redis, namespace: string): Promise<Kept[]> {
  const kept: Kept[] = [];
  const [seconds, microseconds] = await redis.time();
  const nowUs = Number(seconds) * 1e6 + Number(microseconds);
  for await (const names of redis.scanStream({ match: '*', count: 1_000 })) {
    for (const name of names as string[]) {
      const [, key = name, part] = /^\{(.*)\}:(\w+)$/.exec(name) ?? [];
      if ((await redis.pttl(name)) === -1) kept.push({ key: name, what: 'forever' });
      if (!key.startsWith(`${namespace}:`)) continue;
      const plainKey = key.slice(namespace.length + 1);
      if (part === 'lock' && isHeld(await redis.get(name), nowUs))
        kept.push({ key: plainKey, what: 'grant' });
      if (part === 'line' && (await redis.zcard(name)) > 0) kept.push({ key: plainKey, what: 'line' });
    }
  }
  return kept;
}

/** The columns of a lock: see the script. */
const isHeld = (lock: string | null, nowUs: number): boolean =>
  lock !== null && Number(lock.slice(19, 35)) > nowUs && Number(lock.slice(36, 52)) > 0;
