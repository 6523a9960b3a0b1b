import { randomUUID } from 'node:crypto';
import { afterAll, describe, expect, it } from '@jest/globals';
import { Redis } from 'ioredis';
import { Redis as Redis6 } from 'ioredis-6';
import { redisBackend } from '../../lib/backends/redis/redis-backend.js';
import { serviceUrl } from '../environment.js';
import { keepsTheLaws } from './keeps-the-laws.js';

const url = serviceUrl('TEST_REDIS_URL');
const admin = new Redis(url);
afterAll(() => admin.quit());

const forget = async (key: string) => {
  for (const prefix of ['', 'shop:']) await admin.del(`${prefix}{${key}}:lock`);
};

describe('by URL', () => keepsTheLaws('redis', { open: () => redisBackend({ url }), forget }));

describe('by a client of ioredis 5 with a key prefix', () => {
  const client = new Redis(url, { keyPrefix: 'shop:', lazyConnect: true });
  keepsTheLaws('redis', { open: () => redisBackend({ client }), forget });
});

describe('by a client of ioredis 6', () => {
  const connectionName = randomUUID();
  const client = new Redis6(url, { lazyConnect: true, connectionName }) as unknown as Redis;
  const open = () => redisBackend({ client });
  keepsTheLaws('redis', { open, forget });

  it('RESP3 is spoken', async () => {
    const backend = open();
    await backend.check!(1_000);
    const connections = String(await admin.client('LIST')).split('\n');
    expect(connections.find((line) => line.includes(connectionName))).toContain('resp=3');
    await backend.close();
  });
});
