import { randomUUID } from 'node:crypto';
import { afterEach, expect, it } from '@jest/globals';
import { Redis } from 'ioredis';
import { serviceUrl } from '../environment.js';
import { redisStore } from '../stores.js';
import { endAll, startWorker } from './start-worker.js';

afterEach(endAll);

const KEYS = 10_000;
/** Less than what a single forgotten object for each key would take. */
const NOISE_BYTES = 1_000_000;
const HOUR_MS = 60 * 60 * 1_000;

it('ten thousand keys, each locked once, leave nothing in the process and nothing for ever in the store', async () => {
  const namespace = randomUUID();
  const worker = startWorker<{ heapBytes: number; timers: number }>('many-keys', {
    store: redisStore(),
    namespace,
    rounds: 3,
    keys: KEYS,
  });
  expect(await worker.ended).toBe(0);
  const [, warm, last] = worker.messages;
  expect(last!.heapBytes - warm!.heapBytes).toBeLessThan(NOISE_BYTES);
  expect(last!.timers).toBeLessThanOrEqual(warm!.timers);

  const redis = new Redis(serviceUrl('TEST_REDIS_URL'));
  const left = await redis.keys(`{${namespace}:2:*`);
  const livesMs = await Promise.all(left.map((key) => redis.pttl(key)));
  await redis.quit();
  expect(left.filter((key) => !key.endsWith(':memory'))).toEqual([]);
  expect(livesMs.every((ms) => ms > 0 && ms <= HOUR_MS)).toBe(true);
}, 120_000);
