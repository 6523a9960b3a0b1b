import { openBetterSqlite3Store } from './better-sqlite3.js';
import { openEtcdStore } from './etcd.js';
import { openMariadbStore } from './mariadb.js';
import { openPostgresStore } from './postgres.js';
import { openRedisStore } from './redis.js';
import { openRedlockStore } from './redlock.js';
import type { StoreUnderTest, StoreOptions } from './store-under-test.js';
import { openZookeeperStore } from './zookeeper.js';

/** Every kind of store that chaos can come over. */
export const storesUnderTest: Readonly<Record<string, (options: StoreOptions) => Promise<StoreUnderTest>>> = {
  redis: openRedisStore,
  postgres: openPostgresStore,
  mariadb: openMariadbStore,
  'better-sqlite3': openBetterSqlite3Store,
  redlock: openRedlockStore,
  etcd: openEtcdStore,
  zookeeper: openZookeeperStore,
};
