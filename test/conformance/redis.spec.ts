import { randomUUID } from 'node:crypto';
import { afterAll, expect, it } from 'vitest';
import { Redis } from 'ioredis';
import { Redis as Redis6 } from 'ioredis-6';
import { redisBackend } from '../../lib/backends/redis/single/redis-backend.js';
import { serviceUrl } from '../support/environment.js';
import { describeLaws, lawsOfSettings } from './law-suite.js';

const url = serviceUrl('TEST_REDIS_URL');
const admin = new Redis(url);
afterAll(() => admin.quit());

const forget = async (key: string) => {
  for (const prefix of ['', 'shop:']) await admin.del(`${prefix}{${key}}:lock`);
};

describeLaws('redis by URL', { open: () => redisBackend({ url }), forget });

const prefixed = new Redis(url, { keyPrefix: 'shop:', lazyConnect: true });
const byPrefixed = { open: () => redisBackend({ client: prefixed }), forget };
describeLaws('redis by a client of ioredis 5 with a key prefix', byPrefixed, { laws: lawsOfSettings });

const connectionName = randomUUID();
const client6 = new Redis6(url, { lazyConnect: true, connectionName }) as unknown as Redis;
const on6 = () => redisBackend({ client: client6 });
describeLaws('redis by a client of ioredis 6', { open: on6, forget }, { laws: lawsOfSettings });

it('a client of ioredis 6 speaks RESP3', async () => {
  const backend = on6();
  await backend.check!(1_000);
  const connections = String(await admin.client('LIST')).split('\n');
  expect(connections.find((line) => line.includes(connectionName))).toContain('resp=3');
  await backend.close();
});
