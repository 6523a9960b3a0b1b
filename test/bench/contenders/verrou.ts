import { createRequire } from 'node:module';
import { type Contender, type Held, type Setting, type StoreName, TUNED_RETRY_MS } from '../contender.js';
import { modernPeer, peer } from '../peers.js';
import { peerRedis } from './peer-redis.js';
import { POOL_SIZE } from './plain-pg.js';
import { SQLITE_PRAGMAS } from './plain-sqlite.js';

interface Store {
  factory(): object;
}

interface Verrou {
  readonly LockFactory: new (store: object) => {
    createLock(key: string, leaseMs: number): Held & { acquire(options: object): Promise<boolean> };
  };
}

interface Drivers {
  redisStore(options: { connection: unknown }): Store;
  knexStore(options: { connection: Knex; tableName: string }): Store;
}

interface Knex {
  destroy(): Promise<void>;
}

type MakeKnex = (config: object) => Knex;

/** Its own default. */
const RETRY_MS = 250;

const verrou = (
  store: StoreName,
  connect: (setting: Setting) => Promise<{ store: Store; close(): Promise<unknown> }>,
): Contender => ({
  name: 'verrou',
  store,
  kind: 'peer',
  commands: ['set', 'eval'],
  async open(setting) {
    const { profile, leaseMs, waitMs } = setting;
    const { LockFactory } = await modernPeer<Verrou>('@verrou/core');
    const { store, close } = await connect(setting);
    const locks = new LockFactory(store.factory());
    const delay = profile === 'tuned' ? TUNED_RETRY_MS : RETRY_MS;
    const options = { retry: { attempts: Infinity, delay, timeout: waitMs } };
    return {
      async acquire(key) {
        const lock = locks.createLock(key, leaseMs);
        if (await lock.acquire(options)) return lock;
        throw new Error(`still taken after ${waitMs} ms`);
      },
      close,
    };
  },
});

const overKnex = async (config: object) => {
  const connection = peer<MakeKnex>('knex')(config);
  const { knexStore } = await modernPeer<Drivers>('@verrou/core/drivers/knex');
  return { store: knexStore({ connection, tableName: 'verrou' }), close: () => connection.destroy() };
};

const pool = { min: 0, max: POOL_SIZE };

export const all: readonly Contender[] = [
  verrou('redis', async ({ stores }) => {
    const connection = await peerRedis(stores.redis);
    const { redisStore } = await modernPeer<Drivers>('@verrou/core/drivers/redis');
    return { store: redisStore({ connection }), close: async () => connection.disconnect() };
  }),
  verrou('postgres', ({ stores }) => overKnex({ client: 'pg', connection: stores.postgres, pool })),
  verrou('mariadb', ({ stores }) =>
    overKnex({ client: 'mysql2', connection: stores.mariadb.replace(/^mariadb:/, 'mysql:'), pool }),
  ),
  verrou('sqlite', ({ stores: { sqlite } }) =>
    overKnex({
      client: knexClientOver(sqlite.driver),
      connection: { filename: sqlite.file },
      useNullAsDefault: true,
      pool: { min: 1, max: 1, afterCreate: prepare },
    }),
  ),
];

/** Knex would look for better-sqlite3 among its own packages, where it is not. */
function knexClientOver(driver: string): unknown {
  type Client = new (...options: unknown[]) => object;
  const BetterSqlite3Client = peer<Client>('knex/lib/dialects/better-sqlite3');
  return class extends BetterSqlite3Client {
    _driver(): unknown {
      return createRequire(import.meta.url)(driver);
    }
  };
}

function prepare(database: { pragma(text: string): unknown }, done: (error: null, database: object) => void) {
  for (const pragma of SQLITE_PRAGMAS) database.pragma(pragma);
  done(null, database);
}
