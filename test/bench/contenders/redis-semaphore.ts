import type { Redis } from 'ioredis';
import { type Contender, type Held, TUNED_RETRY_MS } from '../contender.js';
import { peer } from '../peers.js';
import { peerRedis } from './peer-redis.js';

interface RedisSemaphore {
  readonly Mutex: new (client: Redis, key: string, options: object) => Held & { acquire(): Promise<void> };
}

/** It renews every lock, at 0.8 of the lease, and looks again every 10 ms unless told otherwise. */
export const all: readonly Contender[] = [
  {
    name: 'redis-semaphore',
    store: 'redis',
    kind: 'peer',
    commands: ['set', 'evalsha', 'eval'],
    renews: true,
    async open({ profile, leaseMs, waitMs, stores }) {
      const client = await peerRedis(stores.redis);
      const { Mutex } = peer<RedisSemaphore>('redis-semaphore');
      const pauses = profile === 'tuned' ? { retryInterval: TUNED_RETRY_MS } : {};
      const options = { lockTimeout: leaseMs, acquireTimeout: waitMs, ...pauses };
      const acquire = async (key: string): Promise<Held> => {
        const mutex = new Mutex(client, key, options);
        await mutex.acquire();
        return mutex;
      };
      return { acquire, hold: acquire, close: async () => client.disconnect() };
    },
  },
];
