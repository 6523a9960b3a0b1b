import type { Redis } from 'ioredis';
import { type Contender, MANY_TRIES, type Session } from '../contender.js';
import { peer } from '../peers.js';
import { peerRedis } from './peer-redis.js';
import type { Redlock4, Redlock5 } from './redlock.js';
import type { RedlockUniversal } from './redlock-universal.js';

type Opened = Pick<Session, 'acquire'>;

/** The peers that lock on a majority, on the five servers. */
const onQuorum = (
  { name, commands = [] }: { name: string; commands?: string[] },
  open: (clients: Redis[], leaseMs: number) => Opened,
): Contender => ({
  name,
  store: 'quorum',
  kind: 'peer',
  commands: ['evalsha', 'eval', ...commands],
  only: ['B7'],
  async open({ leaseMs, stores }) {
    const clients = await Promise.all(stores.quorum.map(peerRedis));
    return {
      ...open(clients, leaseMs),
      close: async () => clients.forEach((client) => client.disconnect()),
    };
  },
});

export const all: readonly Contender[] = [
  onQuorum({ name: 'redlock 4' }, (clients, leaseMs) => {
    const locks = new (peer<Redlock4>('redlock-4'))(clients, { retryCount: -1 });
    locks.on('clientError', () => undefined);
    return {
      async acquire(key) {
        const lock = await locks.lock(key, leaseMs);
        return { release: () => lock.unlock() };
      },
    };
  }),
  onQuorum({ name: 'redlock 5' }, (clients, leaseMs) => {
    const { default: Redlock } = peer<{ default: new (clients: Redis[], settings: object) => Redlock5 }>(
      'redlock-5',
    );
    const locks = new Redlock(clients, { retryCount: MANY_TRIES });
    return { acquire: (key) => locks.acquire([key], leaseMs, { retryCount: MANY_TRIES }) };
  }),
  onQuorum({ name: 'redlock-universal', commands: ['set', 'script|load', 'ping'] }, (clients, leaseMs) => {
    const { IoredisAdapter, createRedlock } = peer<RedlockUniversal>('redlock-universal');
    const adapters = clients.map((client) => new IoredisAdapter(client));
    return {
      async acquire(key) {
        const lock = createRedlock({ adapters, key, ttl: leaseMs, retryAttempts: MANY_TRIES });
        const handle = await lock.acquire();
        return { release: () => lock.release(handle) };
      },
    };
  }),
];
