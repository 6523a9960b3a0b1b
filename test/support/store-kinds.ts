import { startMariadb } from '../services/mariadb.js';
import { startPostgres } from '../services/postgres.js';
import { startRedis } from '../services/redis-server.js';
import type { Service, ServiceOptions } from '../services/service.js';
import type { Store } from './stores.js';

/** A kind of store with a server of its own, to be killed or frozen. */
export interface StoreKind {
  readonly name: 'redis' | 'postgres' | 'mariadb';
  readonly start: (options?: ServiceOptions) => Promise<Service>;
  readonly storeAt: (url: string) => Store;
}

export const storeKinds: readonly StoreKind[] = [
  { name: 'redis', start: startRedis, storeAt: (url) => ({ redis: url }) },
  {
    name: 'postgres',
    start: startPostgres,
    storeAt: (url) => ({ database: { type: 'postgres', at: url } }),
  },
  { name: 'mariadb', start: startMariadb, storeAt: (url) => ({ database: { type: 'mariadb', at: url } }) },
];
