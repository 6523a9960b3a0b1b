import { join } from 'node:path';
import type { Store } from '../../support/stores.js';
import {
  betterSqlite3Store,
  libsqlStore,
  mariadbStore,
  postgresStore,
  redisStore,
} from '../../support/stores.js';
import type { Resource } from './messages.js';
import type { Recipe } from './recipes.js';

/** Where recipes run: a store of locks, and one for their data. */
export interface RecipeStore {
  readonly name: string;
  readonly locks: Store;
  resourceFor(data: Recipe['data'], prefix: string): Resource;
  has(data: Recipe['data']): boolean;
}

const redisRecipeStore = (name: string, locks: Store, redis: string): RecipeStore => ({
  ...{ name, locks },
  has: (data) => data !== 'sql',
  resourceFor: (data, prefix) => (data === 'redis' ? { redis, prefix } : null),
});

const sqlRecipeStore = (name: string, locks: Store, database: Store = locks): RecipeStore => ({
  ...{ name, locks },
  has: (data) => data !== 'redis',
  resourceFor: (data, prefix) => (data === 'sql' ? { database, prefix } : null),
});

/** The places by name. Files go to the folder; a quorum needs its servers. */
export const recipeStores: Readonly<
  Record<string, (folder: string, quorum: readonly string[]) => RecipeStore>
> = {
  redis: () => {
    const store = redisStore();
    return redisRecipeStore('redis', store, (store as { redis: string }).redis);
  },
  quorum: (_folder, quorum) => redisRecipeStore('quorum', { quorum: { at: quorum } }, quorum[0]!),
  postgres: () => sqlRecipeStore('postgres', postgresStore()),
  mariadb: () => sqlRecipeStore('mariadb', mariadbStore()),
  mysql: () => sqlRecipeStore('mysql', mariadbStore('mysql')),
  // Locks have a file of their own: a file has one writer at a time.
  sqlite: (folder) =>
    sqlRecipeStore(
      'sqlite',
      betterSqlite3Store(join(folder, 'locks.db')),
      betterSqlite3Store(join(folder, 'app.db')),
    ),
  libsql: (folder) =>
    sqlRecipeStore(
      'libsql',
      libsqlStore(join(folder, 'lib-locks.db')),
      libsqlStore(join(folder, 'lib-app.db')),
    ),
};
