import { createRequire } from 'node:module';
import { setTimeout as sleep } from 'node:timers/promises';
import type { DataSourceOptions } from 'typeorm';
import type { LockBackend } from '../../../lib/core/backend.js';
import { QUORUM_LEASE_MS } from '../bench.js';
import { hasBuildBefore, importBuilt, useBuildBefore } from '../built-package.js';
import { TICK_TIME_MS } from '../../services/zookeeper.js';
import type { Contender, Setting, StoreName, Stores } from '../contender.js';
import { SQLITE_PRAGMAS } from './plain-sqlite.js';

/** As an application uses it: a Nest module and the injected service. */
const ours = (store: StoreName, backend: (stores: Stores) => Promise<LockBackend>): Contender => ({
  name: 'ours',
  store,
  kind: 'ours',
  commands: ['evalsha', 'eval', 'subscribe'],
  renews: true,
  hasPermits: true,
  async open({ leaseMs, waitMs, stores }: Setting) {
    // Only who needs Nest loads it: that takes a while, and peers bring another one.
    const { NestFactory } = await import('@nestjs/core');
    const { DistributedLockModule, LockService } = await importBuilt('index.js');
    const module = DistributedLockModule.forRoot({
      backend: await backend(stores),
      defaults: { leaseMs, waitMs },
      shutdown: { drainMs: 0, abortGraceMs: 0 },
    });
    const app = await NestFactory.createApplicationContext(module, { logger: false });
    const locks = app.get(LockService);
    return {
      acquire: (key) => locks.acquire(key),
      acquireKind: (key, kind) => locks.acquire(key, kind),
      withLock: (key) => locks.withLock(key, () => undefined),
      async hold(key) {
        const lock = await locks.acquire(key);
        const isInStore = async () => (await locks.inspect(key))?.fencingToken === lock.fencingToken;
        return { release: () => lock.release(), isOurs: () => lock.isValid(), isInStore };
      },
      listPage: async (cursor) => (await locks.list({ limit: 100, ...(cursor && { cursor }) })).cursor,
      close: () => app.close(),
    };
  },
});

const typeorm = async (dataSource: DataSourceOptions) =>
  (await importBuilt('backends/typeorm/index.js')).typeormBackend({ dataSource });

/** Servers that may have forgotten have no vote for a lease: they have been up for so long when this is open. */
async function onQuorum({ quorum }: Stores): Promise<LockBackend> {
  const { redlockBackend } = await importBuilt('backends/redis/index.js');
  const backend = redlockBackend({ clients: quorum.map((url) => ({ url })), maxLeaseMs: QUORUM_LEASE_MS });
  for (let hasVotes = false; !hasVotes;) {
    hasVotes = await backend.check!(QUORUM_LEASE_MS).then(
      () => true,
      () => sleep(200, false),
    );
  }
  return backend;
}

const sqliteOptions = ({ driver, file }: Stores['sqlite']): DataSourceOptions => ({
  type: 'better-sqlite3',
  database: file,
  driver: createRequire(import.meta.url)(driver) as unknown,
  enableWAL: true,
  prepareDatabase: (database) => {
    for (const pragma of SQLITE_PRAGMAS) (database as { pragma(text: string): unknown }).pragma(pragma);
  },
});

const now: readonly Contender[] = [
  ours('redis', async ({ redis }) =>
    (await importBuilt('backends/redis/index.js')).redisBackend({ url: redis }),
  ),
  { ...ours('quorum', onQuorum), only: ['B7'] },
  ours('postgres', ({ postgres }) => typeorm({ type: 'postgres', url: postgres })),
  ours('mariadb', ({ mariadb }) => typeorm({ type: 'mariadb', url: mariadb })),
  ours('sqlite', ({ sqlite }) => typeorm(sqliteOptions(sqlite))),
  {
    ...ours('etcd', async ({ etcd }) =>
      (await importBuilt('backends/etcd/index.js')).etcdBackend({ hosts: etcd }),
    ),
    only: ['B5', 'B14'],
  },
  {
    ...ours('zookeeper', async ({ zookeeper }) =>
      (await importBuilt('backends/zookeeper/index.js')).zookeeperBackend({
        servers: zookeeper,
        tickTimeMs: TICK_TIME_MS,
      }),
    ),
    only: ['B5', 'B14'],
  },
  ours('memory', async () => (await importBuilt('backends/memory/index.js')).memoryBackend()),
];

/** The same with an earlier build, to compare with. */
const before: readonly Contender[] = now.map((contender) => ({
  ...contender,
  name: 'ours before',
  kind: 'floor',
  open(setting) {
    useBuildBefore();
    return contender.open(setting);
  },
}));

export const all: readonly Contender[] = hasBuildBefore ? [...now, ...before] : now;
