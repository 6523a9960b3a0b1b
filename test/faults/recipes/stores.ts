import { join } from 'node:path';
import type { Store } from '../../stores.js';
import { betterSqlite3Store, libsqlStore, mariadbStore, postgresStore, redisStore } from '../../stores.js';
import type { Resource } from './messages.js';
import type { Recipe } from './recipes.js';

/** Where recipes run: a store of locks, and one for their data. */
export interface Place {
  readonly name: string;
  readonly locks: Store;
  resourceFor(data: Recipe['data'], prefix: string): Resource;
  has(data: Recipe['data']): boolean;
}

const redisPlace = (name: string, locks: Store, redis: string): Place => ({
  ...{ name, locks },
  has: (data) => data !== 'sql',
  resourceFor: (data, prefix) => (data === 'redis' ? { redis, prefix } : null),
});

const sqlPlace = (name: string, locks: Store, database: Store = locks): Place => ({
  ...{ name, locks },
  has: (data) => data !== 'redis',
  resourceFor: (data, prefix) => (data === 'sql' ? { database, prefix } : null),
});

/** The places by name. Files go to the folder; a quorum needs its servers. */
export const places: Readonly<Record<string, (folder: string, quorum: readonly string[]) => Place>> = {
  redis: () => {
    const store = redisStore();
    return redisPlace('redis', store, (store as { redis: string }).redis);
  },
  quorum: (_folder, quorum) => redisPlace('quorum', { quorum: { at: quorum } }, quorum[0]!),
  postgres: () => sqlPlace('postgres', postgresStore()),
  mariadb: () => sqlPlace('mariadb', mariadbStore()),
  mysql: () => sqlPlace('mysql', mariadbStore('mysql')),
  // Locks have a file of their own: a file has one writer at a time.
  sqlite: (folder) =>
    sqlPlace(
      'sqlite',
      betterSqlite3Store(join(folder, 'locks.db')),
      betterSqlite3Store(join(folder, 'app.db')),
    ),
  libsql: (folder) =>
    sqlPlace('libsql', libsqlStore(join(folder, 'lib-locks.db')), libsqlStore(join(folder, 'lib-app.db'))),
};
