import { type Contender, MANY_TRIES, TUNED_RETRY_MS } from '../contender.js';
import { nestWith, peer } from '../peers.js';
import { heldByUsing } from './lock-from-using.js';

interface Murlock {
  readonly MurLockModule: { forRoot(options: object): unknown };
  readonly MurLockService: unknown;
}

interface MurLockService {
  runWithLock(key: string, leaseMs: number, work: () => Promise<void>): Promise<void>;
  onApplicationShutdown(signal: string): Promise<void>;
}

/** The option has no default; this is what its README shows. */
const README_WAIT_MS = 1_000;

export const all: readonly Contender[] = [
  {
    name: 'murlock',
    store: 'redis',
    kind: 'peer',
    commands: ['eval'],
    async open({ profile, leaseMs, stores }) {
      const { MurLockModule, MurLockService } = peer<Murlock>('murlock');
      const app = await nestWith(
        MurLockModule.forRoot({
          redisOptions: { url: stores.redis },
          wait: profile === 'tuned' ? TUNED_RETRY_MS : README_WAIT_MS,
          maxAttempts: MANY_TRIES,
          blocking: true,
          logLevel: 'error',
          ignoreUnlockFail: false,
          failFastOnRedisError: false,
        }),
      );
      const locks = app.get(MurLockService) as MurLockService;
      return {
        acquire: (key) => heldByUsing((work) => locks.runWithLock(key, leaseMs, work)),
        async close() {
          await app.close();
          // It closes its client at a signal only.
          await locks.onApplicationShutdown('SIGTERM');
        },
      };
    },
  },
];
