import { type Contender, type Held, MANY_TRIES, TUNED_RETRY_MS } from '../contender.js';
import { modernPeer, nestWith, peer } from '../peers.js';

interface NestjsRedisLock {
  readonly RedlockModule: { forRoot(options: object): unknown };
  readonly RedlockService: unknown;
}

interface RedlockService {
  acquire(key: string, leaseMs: number): Promise<(Held & { startAutoExtension(): void }) | null>;
}

interface NodeRedis {
  createClient(options: { url: string }): { connect(): Promise<{ destroy(): void }> };
}

export const all: readonly Contender[] = [
  {
    name: '@nestjs-redis/lock',
    store: 'redis',
    kind: 'peer',
    commands: ['eval', 'evalsha'],
    renews: true,
    async open({ profile, leaseMs, stores }) {
      const client = await peer<NodeRedis>('redis').createClient({ url: stores.redis }).connect();
      const { RedlockModule, RedlockService } = await modernPeer<NestjsRedisLock>('@nestjs-redis/lock');
      const pauses =
        profile === 'tuned' ? { retryDelayMs: TUNED_RETRY_MS, retryJitterMs: TUNED_RETRY_MS } : {};
      const redlockConfig = { maxRetryAttempts: MANY_TRIES, ...pauses };
      const app = await nestWith(RedlockModule.forRoot({ clients: [client], redlockConfig }));
      const locks = app.get(RedlockService) as RedlockService;
      const acquire = async (key: string) => {
        const lock = await locks.acquire(key, leaseMs);
        if (lock) return lock;
        throw new Error('gave up, and answered null');
      };
      return {
        acquire,
        async hold(key) {
          const lock = await acquire(key);
          lock.startAutoExtension();
          return lock;
        },
        async close() {
          await app.close();
          client.destroy();
        },
      };
    },
  },
];
