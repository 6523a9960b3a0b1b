import { afterAll, beforeAll, describe } from '@jest/globals';
import { Redis } from 'ioredis';
import { redlockBackend } from '../../lib/backends/redis/quorum/redlock-backend.js';
import { startRedisQuorum, stopAll } from '../services/redis-quorum.js';
import type { Service } from '../services/service.js';
import { keepsTheLawsTogether } from './keeps-the-laws.js';

function onServers({ count, down }: { count: number; down: number }): void {
  let servers: readonly Service[] = [];
  let admins: Redis[] = [];
  beforeAll(async () => {
    servers = await startRedisQuorum(count);
    for (const server of servers.slice(0, down)) server.kill('SIGKILL');
    admins = servers.slice(down).map(({ url }) => new Redis(url));
  });
  afterAll(async () => {
    for (const admin of admins) admin.disconnect();
    await stopAll(servers);
  });
  const clients = () => servers.map(({ url }) => ({ url }));
  keepsTheLawsTogether('redlock', {
    open: () => redlockBackend({ clients: clients() }),
    forget: async (key) => {
      await Promise.all(admins.map((admin) => admin.del(`{${key}}:lock`)));
    },
  });
}

describe('on five servers', () => onServers({ count: 5, down: 0 }));

describe('on three servers, one of which is down', () => onServers({ count: 3, down: 1 }));
