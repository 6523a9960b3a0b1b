import { createRequire } from 'node:module';
import { join } from 'node:path';
import { Cluster } from 'ioredis';
import Database from 'libsql';
import type { DataSourceOptions } from 'typeorm';
import { etcdBackend } from '../../lib/backends/etcd/index.js';
import { redisBackend, redlockBackend } from '../../lib/backends/redis/index.js';
import { typeormBackend } from '../../lib/backends/typeorm/index.js';
import { zookeeperBackend } from '../../lib/backends/zookeeper/index.js';
import type { LockBackend } from '../../lib/core/backend.js';
import { TICK_TIME_MS } from '../services/zookeeper.js';
import { serviceUrl } from './environment.js';

/** A store that several processes can share, in a form that goes through a command line. */
export type Store =
  | { readonly redis: string }
  | { readonly sentinels: SentinelStore }
  | { readonly cluster: readonly Address[] }
  | { readonly quorum: QuorumStore }
  | { readonly etcd: readonly string[] }
  | { readonly zookeeper: ZookeeperStore }
  | { readonly database: DatabaseStore };

interface Address {
  readonly host: string;
  readonly port: number;
}

interface SentinelStore {
  readonly name: string;
  readonly at: readonly Address[];
  readonly minReplicas?: number;
}

interface QuorumStore {
  readonly at: readonly string[];
  readonly maxLeaseMs?: number;
}

interface ZookeeperStore {
  readonly servers: readonly string[];
  /** @default 40_000, with ticks of 200 ms */
  readonly sessionTimeoutMs?: number;
}

interface DatabaseStore {
  readonly type: 'postgres' | 'mariadb' | 'mysql' | 'better-sqlite3';
  /** A URL, or the path of the file. */
  readonly at: string;
  /** For `better-sqlite3`: the module to load, or the one that needs no compiler. */
  readonly driver?: string;
  /** For `better-sqlite3`. @default a rollback journal */
  readonly enableWAL?: boolean;
}

export const etcdStore = (): Store => ({ etcd: [serviceUrl('TEST_ETCD_URL')] });
export const zookeeperStore = (sessionTimeoutMs?: number): Store => ({
  zookeeper: {
    servers: [serviceUrl('TEST_ZOOKEEPER_URL')],
    ...(sessionTimeoutMs !== undefined && { sessionTimeoutMs }),
  },
});
export const redisStore = (): Store => ({ redis: serviceUrl('TEST_REDIS_URL') });
export const postgresStore = (): Store => ({
  database: { type: 'postgres', at: serviceUrl('TEST_POSTGRES_URL') },
});
export const mariadbStore = (type: 'mariadb' | 'mysql' = 'mariadb'): Store => ({
  database: { type, at: serviceUrl('TEST_MARIADB_URL').replace(/^mariadb:/, `${type}:`) },
});
export const libsqlStore = (file: string): Store => ({ database: { type: 'better-sqlite3', at: file } });
export const betterSqlite3Store = (file: string): Store => ({
  database: { type: 'better-sqlite3', at: file, driver: serviceUrl('TEST_BETTER_SQLITE3') },
});

type NamedStore = [name: string, storeOf: () => Store];

export const sqlServers: NamedStore[] = [
  ['postgres', postgresStore],
  ['mariadb', () => mariadbStore()],
];

/** Every SQL store there is; files go to the folder. */
export const databasesIn = (folder: string): NamedStore[] => [
  ...sqlServers,
  ['mysql', () => mariadbStore('mysql')],
  ['better-sqlite3', () => betterSqlite3Store(join(folder, 'better-sqlite3.db'))],
  ['libsql', () => libsqlStore(join(folder, 'libsql.db'))],
];

export function backendOn(store: Store): LockBackend {
  if ('redis' in store) return redisBackend({ url: store.redis });
  if ('sentinels' in store) return sentinelBackend(store.sentinels);
  if ('cluster' in store) {
    return redisBackend({ client: new Cluster([...store.cluster], { lazyConnect: true }) });
  }
  if ('etcd' in store) return etcdBackend({ hosts: store.etcd });
  if ('zookeeper' in store) return zookeeperBackend({ tickTimeMs: TICK_TIME_MS, ...store.zookeeper });
  if ('quorum' in store) return quorumBackend(store.quorum);
  return typeormBackend({ dataSource: dataSourceOptions(store) });
}

const sentinelBackend = ({ name, at, minReplicas }: SentinelStore): LockBackend =>
  redisBackend({
    options: { name, sentinels: [...at] },
    ...(minReplicas !== undefined && { minReplicas }),
  });

const quorumBackend = ({ at, ...options }: QuorumStore): LockBackend =>
  redlockBackend({ clients: at.map((url) => ({ url })), ...options });

export function dataSourceOptions(store: Store): DataSourceOptions {
  if (!('database' in store)) throw new Error('Expected a database, got Redis.');
  const { type, at, driver, enableWAL = false } = store.database;
  if (type !== 'better-sqlite3') return { type, url: at };
  const module: unknown = driver ? createRequire(import.meta.url)(driver) : Database;
  return { type, database: at, driver: module, enableWAL };
}
