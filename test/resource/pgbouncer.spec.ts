import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Column, type DataSource, Entity, PrimaryColumn } from 'typeorm';
import {
  FencingToken,
  fencedFindOne,
  fencedUpdate,
  typeormBackend,
  withLockedTransaction,
} from '../../lib/backends/typeorm/index.js';
import { LockLostError } from '../../lib/core/errors.js';
import { startPgbouncer } from '../services/pgbouncer.js';
import type { Service } from '../services/service.js';
import { bareLocks } from '../support/bare-locks.js';
import { serviceUrl } from '../support/environment.js';
import type { Store } from '../support/stores.js';
import { tablesOn } from './databases.js';

@Entity()
class Product {
  @PrimaryColumn('int')
  id!: number;

  @Column('int')
  stock!: number;

  @FencingToken()
  fencingToken?: bigint;
}

let pooler: Service;
beforeAll(async () => {
  const [file, server] = [serviceUrl('TEST_PGBOUNCER'), serviceUrl('TEST_POSTGRES_URL')];
  pooler = await startPgbouncer({ file, server });
});
afterAll(() => pooler.stop());

const store = (): Store => ({ database: { type: 'postgres', at: pooler.url } });

describe('behind PgBouncer in transaction mode', () => {
  let database: DataSource;
  tablesOn(store, [Product], (opened) => (database = opened));

  const read = (id: number) => database.manager.findOneByOrFail(Product, { id });

  it('locked transactions with fenced writes, of more callers than servers, lose no update', async () => {
    await database.manager.insert(Product, { id: 1, stock: 20 });
    const backend = typeormBackend({ dataSource: database });
    const locks = bareLocks({ backend, namespace: randomUUID() });
    const sell = () =>
      withLockedTransaction(database, 'product:1', { locks, waitMs: 25_000 }, async (manager, lock) => {
        const { stock } = (await fencedFindOne(manager, Product, { id: 1 }, lock))!;
        await fencedUpdate(manager, Product, { id: 1 }, { stock: stock - 1 }, lock);
      });
    try {
      await Promise.all(Array.from({ length: 20 }, sell));
    } finally {
      await backend.close();
    }
    expect(await read(1)).toMatchObject({ stock: 0 });
  });

  it('an older token is refused after a newer one has read', async () => {
    await database.manager.insert(Product, { id: 2, stock: 20 });
    const late = await fencedFindOne(database, Product, { id: 2 }, 5n);
    await fencedFindOne(database, Product, { id: 2 }, 6n);
    const change = { stock: late!.stock - 1 };
    await expect(fencedUpdate(database, Product, { id: 2 }, change, 5n)).rejects.toThrow(LockLostError);
    expect(await read(2)).toMatchObject({ stock: 20 });
    await fencedUpdate(database, Product, { id: 2 }, change, 6n);
    expect(await read(2)).toMatchObject({ stock: 19 });
  });
});
