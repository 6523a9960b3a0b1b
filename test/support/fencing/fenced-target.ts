import { Redis } from 'ioredis';
import { DataSource } from 'typeorm';
import { fencedSet } from '../../../lib/backends/redis/index.js';
import { fencedUpdate } from '../../../lib/backends/typeorm/index.js';
import { LockLostError } from '../../../lib/core/errors.js';
import { type Store, dataSourceOptions } from '../stores.js';

/** A key of Redis, or a table with one row, that is written under a lock and refuses older fencing tokens by itself. */
export interface FencedTarget {
  readonly store: Store;
  readonly name: string;
}

/** Makes the place for as long as the work goes on. */
export async function withFencedTarget(target: FencedTarget, work: () => Promise<void>): Promise<void> {
  const { store, name } = target;
  if ('redis' in store) return work();
  await using database = await open(store);
  await database.query(`CREATE TABLE ${name} (id INT PRIMARY KEY, token BIGINT)`);
  try {
    await database.query(`INSERT INTO ${name} VALUES (1, NULL)`);
    await work();
  } finally {
    await database.query(`DROP TABLE ${name}`);
  }
}

/** Says whether the write was accepted. */
export async function writeTo({ store, name }: FencedTarget, fencingToken: bigint): Promise<boolean> {
  try {
    if ('redis' in store) {
      const client = new Redis(store.redis);
      await fencedSet(client, name, 'written', fencingToken, { ttlMs: 60_000 }).finally(() => client.quit());
      return true;
    }
    await using database = await open(store);
    return await fencedUpdate(database, { table: name, fencingToken: 'token' }, { id: 1 }, {}, fencingToken);
  } catch (error) {
    if (error instanceof LockLostError) return false;
    throw error;
  }
}

async function open(store: Store): Promise<DataSource & AsyncDisposable> {
  const database = await new DataSource(dataSourceOptions(store)).initialize();
  return Object.assign(database, { [Symbol.asyncDispose]: () => database.destroy() });
}
