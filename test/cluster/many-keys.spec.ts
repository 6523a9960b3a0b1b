import { randomUUID } from 'node:crypto';
import { join } from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import { Redis } from 'ioredis';
import { serviceUrl } from '../support/environment.js';
import {
  type Store,
  betterSqlite3Store,
  mariadbStore,
  postgresStore,
  redisStore,
} from '../support/stores.js';
import { tempFolder } from '../support/temp-folder.js';
import { endAllWorkers, startWorker } from './start-worker.js';

interface Left {
  readonly heapBytes: number;
  readonly timers: number;
}

const folder = tempFolder();
afterEach(endAllWorkers);

/** Less than what one small forgotten object for each key would take. */
const NOISE_BYTES_PER_KEY = 100;
const NOISE_BYTES = 100_000;
const LEASE_MS = 30_000;
const HOUR_MS = 60 * 60 * 1_000;

const stores: [string, () => Store, number][] = [
  ['redis', redisStore, 10_000],
  ['postgres', postgresStore, 2_500],
  ['mariadb', () => mariadbStore(), 2_500],
  ['better-sqlite3', () => betterSqlite3Store(join(folder, 'locks.db')), 1_000],
];

const NEVER = '0'.repeat(16);

describe('many different keys, each locked once', () => {
  it.each(stores)(
    'leave nothing in the process, on %s',
    async (_, storeOf, keys) => {
      const worker = startWorker<Left>('many-keys', {
        store: storeOf(),
        namespace: randomUUID(),
        rounds: 6,
        keys,
      });
      expect(await worker.ended).toBe(0);
      // What is left for each key is left by each round. V8 compiles in some rounds only, and keeps what it has compiled.
      const states = worker.messages.slice(-4);
      const grownBytes = states.slice(1).map(({ heapBytes }, index) => heapBytes - states[index]!.heapBytes);
      const [, medianBytes] = grownBytes.sort((one, other) => one - other);
      expect(medianBytes).toBeLessThan(NOISE_BYTES + keys * NOISE_BYTES_PER_KEY);
      expect(states.at(-1)!.timers).toBeLessThanOrEqual(states[0]!.timers);
    },
    120_000,
  );

  it('leave nothing for ever in Redis', async () => {
    const namespace = randomUUID();
    const worker = startWorker<Left>('many-keys', {
      store: redisStore(),
      namespace,
      rounds: 1,
      keys: 10_000,
    });
    expect(await worker.ended).toBe(0);
    const redis = new Redis(serviceUrl('TEST_REDIS_URL'));
    const left = await redis.keys(`{${namespace}:*`);
    const livesMs = await Promise.all(left.map((key) => redis.pttl(key)));
    const memories = await redis.mget(left);
    await redis.quit();
    expect(livesMs.every((ms) => ms > 0 && ms <= HOUR_MS + LEASE_MS)).toBe(true);
    // Nobody holds it: the columns of the end of the lease and of its fencing token.
    expect(memories.filter((memory) => memory?.slice(19, 52) !== `${NEVER} ${NEVER}`)).toEqual([]);
  }, 120_000);
});
