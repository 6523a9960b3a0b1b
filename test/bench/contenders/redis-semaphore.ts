import type { Redis } from 'ioredis';
import { type Contender, type Held, TUNED_RETRY_MS } from '../contender.js';
import { peer } from '../peers.js';
import { peerRedis } from './peer-redis.js';

type Acquirable = Held & { acquire(): Promise<void> };

interface RedisSemaphore {
  readonly Mutex: new (client: Redis, key: string, options: object) => Acquirable;
  readonly Semaphore: new (client: Redis, key: string, permits: number, options: object) => Acquirable;
}

/** It renews every lock, at 0.8 of the lease, and looks again every 10 ms unless told otherwise. */
export const all: readonly Contender[] = [
  {
    name: 'redis-semaphore',
    store: 'redis',
    kind: 'peer',
    commands: ['set', 'evalsha', 'eval'],
    renews: true,
    hasPermits: true,
    async open({ profile, leaseMs, waitMs, stores }) {
      const client = await peerRedis(stores.redis);
      const { Mutex, Semaphore } = peer<RedisSemaphore>('redis-semaphore');
      const pauses = profile === 'tuned' ? { retryInterval: TUNED_RETRY_MS } : {};
      const options = { lockTimeout: leaseMs, acquireTimeout: waitMs, ...pauses };
      const acquired = async (lock: Acquirable): Promise<Held> => {
        await lock.acquire();
        return lock;
      };
      const acquire = (key: string) => acquired(new Mutex(client, key, options));
      return {
        acquire,
        hold: acquire,
        acquireKind: (key, { permits = 1 }) => acquired(new Semaphore(client, String(key), permits, options)),
        close: async () => client.disconnect(),
      };
    },
  },
];
