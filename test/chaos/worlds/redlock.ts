import { existsSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Redis } from 'ioredis';
import { PERSISTENT, startOldRedis } from '../../services/redis-quorum.js';
import { startRedis } from '../../services/redis-server.js';
import type { Service, ServiceOptions } from '../../services/service.js';
import type { Kept } from '../checkers/orphans.js';
import { Server } from '../server.js';
import { askRedisServer, contentsOf, redisAfflictions } from './ask-redis-server.js';
import { voteFrom } from '../../services/vote.js';
import { QUORUM_LEASE_MS } from '../task.js';
import type { World } from './world.js';

const SERVERS = 5;
const MAJORITY = 3;
/** Five servers that wait for one disk at each write would wait for each other: where there is one, in memory. */
const HOME = existsSync('/dev/shm') ? '/dev/shm' : tmpdir();

/** Those that start again have not been up for long; what they hold is in their folder. */
const start = (options: ServiceOptions): Promise<Service> =>
  options.port === undefined ? startOldRedis(options) : startRedis(options);

/** Five independent Redis servers that keep their data. */
export async function redlockWorld(): Promise<World> {
  const home = await mkdtemp(join(HOME, 'lock-test-chaos-'));
  const servers: Server[] = [];
  const close = async () => {
    for (const server of servers) await server.close();
    await rm(home, { recursive: true, force: true });
  };
  try {
    for (let number = 1; number <= SERVERS; number += 1) {
      const dataDir = await mkdtemp(join(home, `${number}-`));
      servers.push(await Server.start(start, { args: PERSISTENT, dataDir }));
    }
  } catch (error) {
    await close();
    throw error;
  }
  const ask = <T>(question: (redis: Redis) => Promise<T>) =>
    Promise.all(servers.map(({ service }) => askRedisServer(service.url, question)));
  return {
    name: 'redlock',
    servers,
    storeAt: (ports) => {
      const at = ports.map((port) => `redis://127.0.0.1:${port}`);
      return { quorum: { at, maxLeaseMs: QUORUM_LEASE_MS } };
    },
    kept: async (namespace) => keptByMajority(await ask((redis) => keptIn(redis, namespace))),
    ...redisAfflictions(ask),
    close,
  };
}

/** A vote that a minority still keeps is no lock; it is in nobody's way. */
function keptByMajority(perServer: readonly (readonly Kept[])[]): Kept[] {
  const all = perServer.flat();
  const votes = new Map<string, number>();
  for (const { key, what } of all) if (what === 'grant') votes.set(key, (votes.get(key) ?? 0) + 1);
  const held = [...votes].filter(([, count]) => count >= MAJORITY);
  return [
    ...all.filter(({ what }) => what === 'forever'),
    ...held.map(([key]): Kept => ({ key, what: 'grant' })),
  ];
}

async function keptIn(redis: Redis, namespace: string): Promise<Kept[]> {
  const kept: Kept[] = [];
  const { nowUs, entries } = await contentsOf(redis);
  for (const { name, isForever } of entries) {
    const [, key = ''] = /^\{(.*)\}:vote$/.exec(name) ?? [];
    if (isForever) kept.push({ key: name, what: 'forever' });
    if (!key.startsWith(`${namespace}:`)) continue;
    const vote = await redis.get(name);
    if (vote !== null && voteFrom(vote).untilUs > nowUs)
      kept.push({ key: key.slice(namespace.length + 1), what: 'grant' });
  }
  return kept;
}
