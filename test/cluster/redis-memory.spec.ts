import { randomUUID } from 'node:crypto';
import { expect, it } from '@jest/globals';
import { Redis } from 'ioredis';
import { redisBackend } from '../../lib/backends/redis/index.js';
import { startRedis } from '../services/redis-server.js';

it('a lock is given back also when the memory of Redis has run out', async () => {
  const server = await startRedis();
  const admin = new Redis(server.url);
  const backend = redisBackend({ url: server.url });
  const claim = { key: `lock:${randomUUID()}`, holder: randomUUID() };
  try {
    const { acquire } = await backend.exchange(
      { acquire: [{ ...claim, leaseMs: 60_000, instance: '' }] },
      1_000,
    );
    expect(acquire[0]!.kind).toBe('granted');
    await admin.config('SET', 'maxmemory', '1');
    const { release } = await backend.exchange({ release: [claim] }, 1_000);
    expect(release[0]!.kind).toBe('released');
    expect(await backend.inspect(claim.key, 1_000)).toBeNull();
  } finally {
    await backend.close();
    await admin.quit();
    await server.stop();
  }
});
