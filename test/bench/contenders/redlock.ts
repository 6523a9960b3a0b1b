import type { Redis } from 'ioredis';
import { type Contender, type Held, MANY_TRIES, type Profile, TUNED_RETRY_MS } from '../contender.js';
import { nestWith, peer } from '../peers.js';
import { peerRedis } from './peer-redis.js';
import { heldByUsing } from './lock-from-using.js';

/** What we use of redlock 5, and of the Nest service around it. */
export interface Redlock5 {
  acquire(keys: string[], leaseMs: number, settings: object): Promise<Held>;
  using(keys: string[], leaseMs: number, settings: object, work: () => Promise<void>): Promise<void>;
}

export type Redlock4 = new (
  clients: Redis[],
  settings: object,
) => {
  on(event: 'clientError', listener: () => void): void;
  lock(key: string, leaseMs: number): Promise<{ unlock(): Promise<void> }>;
};

interface NestRedlock {
  readonly RedlockModule: { register(options: { clients: Redis[]; settings: object }): unknown };
  readonly RedlockService: unknown;
}

const pauses = (profile: Profile) =>
  profile === 'tuned' ? { retryDelay: TUNED_RETRY_MS, retryJitter: TUNED_RETRY_MS } : {};

const redlock5 = (
  name: string,
  make: (client: Redis, settings: object) => Promise<{ locks: Redlock5; close(): Promise<void> }>,
): Contender => ({
  name,
  store: 'redis',
  kind: 'peer',
  commands: ['evalsha', 'eval'],
  renews: true,
  async open({ profile, leaseMs, stores }) {
    const client = await peerRedis(stores.redis);
    const { locks, close } = await make(client, pauses(profile));
    const settings = { retryCount: MANY_TRIES, ...pauses(profile) };
    return {
      acquire: (key) => locks.acquire([key], leaseMs, settings),
      hold: (key) => heldByUsing((work) => locks.using([key], leaseMs, settings, work)),
      async close() {
        await close();
        client.disconnect();
      },
    };
  },
});

export const all: readonly Contender[] = [
  {
    name: 'redlock 4',
    store: 'redis',
    kind: 'peer',
    commands: ['evalsha', 'eval'],
    async open({ profile, leaseMs, stores }) {
      const client = await peerRedis(stores.redis);
      const locks = new (peer<Redlock4>('redlock-4'))([client], { retryCount: -1, ...pauses(profile) });
      locks.on('clientError', () => undefined);
      return {
        async acquire(key) {
          const lock = await locks.lock(key, leaseMs);
          return { release: () => lock.unlock() };
        },
        close: async () => client.disconnect(),
      };
    },
  },
  redlock5('redlock 5', async (client, settings) => {
    const { default: Redlock } = peer<{ default: new (clients: Redis[], settings: object) => Redlock5 }>(
      'redlock-5',
    );
    return { locks: new Redlock([client], settings), close: async () => undefined };
  }),
  redlock5('@anchan828/nest-redlock', async (client, settings) => {
    const { RedlockModule, RedlockService } = peer<NestRedlock>('@anchan828/nest-redlock');
    const app = await nestWith(RedlockModule.register({ clients: [client], settings }));
    return { locks: app.get(RedlockService) as Redlock5, close: () => app.close() };
  }),
];
