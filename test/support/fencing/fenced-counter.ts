import { Redis } from 'ioredis';
import { DataSource } from 'typeorm';
import { fencedGet, fencedSet } from '../../../lib/backends/redis/index.js';
import { fencedFindOne, fencedUpdate } from '../../../lib/backends/typeorm/index.js';
import type { LockService } from '../../../lib/index.js';
import { type Store, dataSourceOptions } from '../stores.js';

/** Counters that are read and written under locks, in a table or under keys of Redis. */
export interface FencedCounters extends AsyncDisposable {
  create(keys: readonly string[]): Promise<void>;
  drop(): Promise<void>;
  read(key: string): Promise<number>;
  /** As the docs have it: reads under the lock, works out the new value, writes it under the same lock. */
  increment(locks: LockService, key: string, options: IncrementOptions): Promise<void>;
}

export type Step = 'locked' | 'read' | 'written';
export const STEPS: readonly Step[] = ['locked', 'read', 'written'];

interface IncrementOptions {
  readonly leaseMs: number;
  readonly onStep: (step: Step) => Promise<void>;
}

export const fencedCounters = (store: Store, name: string): Promise<FencedCounters> =>
  'redis' in store ? inRedis(store.redis, name) : inDatabase(store, name);

async function inDatabase(store: Store, name: string): Promise<FencedCounters> {
  const database = await new DataSource(dataSourceOptions(store)).initialize();
  const table = { table: name, fencingToken: 'lock_token' };
  return {
    async create(keys) {
      const columns = 'name VARCHAR(40) PRIMARY KEY, amount INT, lock_token BIGINT';
      await database.query(`CREATE TABLE ${name} (${columns})`);
      for (const key of keys) await database.query(`INSERT INTO ${name} VALUES ('${key}', 0, NULL)`);
    },
    drop: () => database.query(`DROP TABLE ${name}`),
    async read(key) {
      const rows: unknown = await database.query(`SELECT amount FROM ${name} WHERE name = '${key}'`);
      return (rows as { amount: number }[])[0]!.amount;
    },
    increment: (locks, key, { leaseMs, onStep }) =>
      locks.withLock(key, { leaseMs, waitMs: 60_000 }, async (lock) => {
        await onStep('locked');
        const row = await fencedFindOne(database, table, { name: key }, lock);
        await onStep('read');
        await fencedUpdate(database, table, { name: key }, { amount: Number(row!['amount']) + 1 }, lock);
        await onStep('written');
      }),
    [Symbol.asyncDispose]: () => database.destroy(),
  };
}

async function inRedis(url: string, name: string): Promise<FencedCounters> {
  const client = new Redis(url);
  const keyOf = (key: string) => `${name}:${key}`;
  return Promise.resolve({
    async create(keys: readonly string[]) {
      for (const key of keys) await client.set(keyOf(key), '0', 'PX', 600_000);
    },
    drop: () => Promise.resolve(),
    read: async (key: string) => Number(await client.get(keyOf(key))),
    increment: (locks: LockService, key: string, { leaseMs, onStep }: IncrementOptions) =>
      locks.withLock(key, { leaseMs, waitMs: 60_000 }, async (lock) => {
        await onStep('locked');
        const count = Number(await fencedGet(client, keyOf(key), lock));
        await onStep('read');
        await fencedSet(client, keyOf(key), String(count + 1), lock, { ttlMs: 600_000 });
        await onStep('written');
      }),
    [Symbol.asyncDispose]: async () => {
      await client.quit();
    },
  });
}
