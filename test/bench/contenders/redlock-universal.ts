import type { Redis } from 'ioredis';
import { type Contender, MANY_TRIES, TUNED_RETRY_MS } from '../contender.js';
import { peer } from '../peers.js';
import { peerRedis } from './peer-redis.js';
import { heldByUsing } from './lock-from-using.js';

export interface RedlockUniversal {
  readonly IoredisAdapter: new (client: Redis) => object;
  createLock(options: object): UniversalLock;
  createRedlock(options: object): UniversalLock;
}

interface UniversalLock {
  acquire(): Promise<object>;
  release(handle: object): Promise<boolean>;
  using(work: () => Promise<void>): Promise<void>;
}

export const all: readonly Contender[] = [
  {
    name: 'redlock-universal',
    store: 'redis',
    kind: 'peer',
    commands: ['set', 'evalsha', 'eval', 'script|load', 'ping'],
    renews: true,
    async open({ profile, leaseMs, stores }) {
      const client = await peerRedis(stores.redis);
      const { IoredisAdapter, createLock } = peer<RedlockUniversal>('redlock-universal');
      const adapter = new IoredisAdapter(client);
      const pauses = profile === 'tuned' ? { retryDelay: TUNED_RETRY_MS } : {};
      const lockFor = (key: string) =>
        createLock({ adapter, key, ttl: leaseMs, retryAttempts: MANY_TRIES, ...pauses });
      return {
        async acquire(key) {
          const lock = lockFor(key);
          const handle = await lock.acquire();
          return { release: () => lock.release(handle) };
        },
        hold: (key) => heldByUsing((work) => lockFor(key).using(work)),
        close: async () => client.disconnect(),
      };
    },
  },
];
