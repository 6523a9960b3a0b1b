import { afterAll, beforeAll } from '@jest/globals';
import { Cluster, Redis } from 'ioredis';
import { redisBackend } from '../../lib/backends/redis/index.js';
import { startRedis } from '../services/redis-server.js';
import type { Service } from '../services/service.js';
import { until } from '../until.js';
import { keepsTheLaws } from './keeps-the-laws.js';

/** A Cluster of one node has all the rules for keys and slots. */
let server: Service;
let admin: Redis;
let client: Cluster;

beforeAll(async () => {
  server = await startRedis({ args: ['--cluster-enabled', 'yes', '--cluster-announce-ip', '127.0.0.1'] });
  admin = new Redis(server.url);
  await admin.cluster('ADDSLOTSRANGE', 0, 16_383);
  await until(async () => (await admin.cluster('INFO')).includes('cluster_state:ok'));
  client = new Cluster([{ host: '127.0.0.1', port: server.port }], { lazyConnect: true });
});
afterAll(async () => {
  client.disconnect();
  await admin.quit();
  await server.stop();
});

keepsTheLaws('redis cluster', {
  open: () => redisBackend({ client }),
  forget: async (key) => {
    await admin.del(`{${key}}:lock`);
  },
});
