import { existsSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Redis } from 'ioredis';
import { PERSISTENT, startOldRedis } from '../../../services/redis-quorum.js';
import { startRedis } from '../../../services/redis-server.js';
import type { Service, ServiceOptions } from '../../../services/service.js';
import type { StoredEntry } from '../checkers/orphans.js';
import { RestartableServer } from '../../injection/restartable-server.js';
import { withRedisServer, contentsOf, redisStoreOperations } from './redis-operations.js';
import { voteFrom } from '../../../services/vote.js';
import { QUORUM_LEASE_MS } from '../workers/worker-messages.js';
import type { StoreUnderTest } from './store-under-test.js';

const SERVERS = 5;
const MAJORITY = 3;
/** Five servers that wait for one disk at each write would wait for each other: where there is one, in memory. */
const HOME = existsSync('/dev/shm') ? '/dev/shm' : tmpdir();

/** Those that start again have not been up for long; what they hold is in their folder. */
const start = (options: ServiceOptions): Promise<Service> =>
  options.port === undefined ? startOldRedis(options) : startRedis(options);

/** Five independent Redis servers that keep their data. */
export async function openRedlockStore(): Promise<StoreUnderTest> {
  const home = await mkdtemp(join(HOME, 'lock-test-chaos-'));
  const servers: RestartableServer[] = [];
  const close = async () => {
    for (const server of servers) await server.close();
    await rm(home, { recursive: true, force: true });
  };
  try {
    for (let number = 1; number <= SERVERS; number += 1) {
      const dataDir = await mkdtemp(join(home, `${number}-`));
      servers.push(await RestartableServer.start(start, { args: PERSISTENT, dataDir }));
    }
  } catch (error) {
    await close();
    throw error;
  }
  const run = <T>(work: (redis: Redis) => Promise<T>) =>
    Promise.all(servers.map(({ service }) => withRedisServer(service.url, work)));
  return {
    name: 'redlock',
    servers,
    storeAt: (ports) => {
      const at = ports.map((port) => `redis://127.0.0.1:${port}`);
      return { quorum: { at, maxLeaseMs: QUORUM_LEASE_MS } };
    },
    storedEntries: async (namespace) =>
      entriesOfMajority(await run((redis) => storedEntriesIn(redis, namespace))),
    ...redisStoreOperations(run),
    close,
  };
}

/** A vote that a minority still keeps is no lock; it is in nobody's way. */
function entriesOfMajority(perServer: readonly (readonly StoredEntry[])[]): StoredEntry[] {
  const all = perServer.flat();
  const votes = new Map<string, number>();
  for (const { key, what } of all) if (what === 'grant') votes.set(key, (votes.get(key) ?? 0) + 1);
  const held = [...votes].filter(([, count]) => count >= MAJORITY);
  return [
    ...all.filter(({ what }) => what === 'forever'),
    ...held.map(([key]): StoredEntry => ({ key, what: 'grant' })),
  ];
}

async function storedEntriesIn(redis: Redis, namespace: string): Promise<StoredEntry[]> {
  const found: StoredEntry[] = [];
  const { nowUs, entries } = await contentsOf(redis);
  for (const { name, isForever } of entries) {
    const [, key = ''] = /^\{(.*)\}:vote$/.exec(name) ?? [];
    if (isForever) found.push({ key: name, what: 'forever' });
    if (!key.startsWith(`${namespace}:`)) continue;
    const vote = await redis.get(name);
    if (vote !== null && voteFrom(vote).untilUs > nowUs)
      found.push({ key: key.slice(namespace.length + 1), what: 'grant' });
  }
  return found;
}
