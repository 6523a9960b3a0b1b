import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import {
  Column,
  type DataSource,
  DeleteDateColumn,
  Entity,
  type EntityManager,
  In,
  ManyToOne,
  PrimaryColumn,
  VirtualColumn,
} from 'typeorm';
import { withRowLock } from '../../lib/backends/typeorm/index.js';
import { LockConfigError, LockTimeoutError, LockUnavailableError } from '../../lib/core/errors.js';
import { postgresStore, sqlServers } from '../support/stores.js';
import { until } from '../support/until.js';
import { databases, strictDatabases, tablesOn } from './databases.js';
import { openGate } from './gate.js';
import { expectIdlePool, killConnectionOf, settingsOf, waitersFor } from './sessions.js';

@Entity()
class Shop {
  @PrimaryColumn('int')
  id!: number;
}

@Entity()
class Product {
  @PrimaryColumn('int')
  id!: number;

  @PrimaryColumn('varchar', { length: 20 })
  size!: string;

  @Column('int')
  stock!: number;

  @ManyToOne(() => Shop, { eager: true, nullable: true, createForeignKeyConstraints: false })
  shop!: Shop | null;

  @DeleteDateColumn()
  deletedAt!: Date | null;
}

let nextId = 1;
const newProduct = async ({ manager }: DataSource): Promise<number> => {
  nextId += 1;
  await manager.insert(Shop, { id: nextId });
  await manager.insert(Product, { id: nextId, size: 'm', stock: 100, shop: { id: nextId } });
  return nextId;
};
const stockOf = async ({ manager }: DataSource, id: number) =>
  (await manager.findOneByOrFail(Product, { id })).stock;

const sellOne = (product: Product, manager: EntityManager) =>
  manager.update(Product, { id: product.id, size: product.size }, { stock: product.stock - 1 });

@Entity()
class Ticket {
  @PrimaryColumn('int')
  id!: number;

  @Column('int')
  concertId!: number;
}

@Entity({ orderBy: { id: 'ASC' } })
class Concert {
  @PrimaryColumn('int')
  id!: number;

  @Column('text', { nullable: true })
  hall!: string | null;

  @VirtualColumn({ query: (alias) => `SELECT COUNT(*) FROM concert_ticket WHERE "concertId" = ${alias}.id` })
  sold!: number;
}

describe('a row lock on postgres, of a row with a computed column', () => {
  let database: DataSource;
  tablesOn(postgresStore, [Concert, Ticket], (opened) => (database = opened));
  beforeAll(() =>
    database.query(`CREATE VIEW concert_ticket AS SELECT * FROM "${database.getMetadata(Ticket).tableName}"`),
  );
  afterAll(() => database.query('DROP VIEW concert_ticket'));

  it('shows what was committed while it waited', async () => {
    await database.manager.insert(Concert, { id: 1 });
    const gate = openGate();
    const buy = async ({ id, sold }: Concert, manager: EntityManager) => {
      if (sold > 0) return 'sold out';
      await manager.insert(Ticket, { id, concertId: id });
      return 'sold';
    };
    const first = withRowLock(database, Concert, { id: 1 }, async (concert, manager) => {
      const outcome = await buy(concert, manager);
      await gate.pass();
      return outcome;
    });
    await gate.reached;
    const { tableName } = database.getMetadata(Concert);
    const second = withRowLock(database, Concert, { id: 1 }, buy, { waitMs: 60_000 });
    await until(async () => (await waitersFor(database, tableName)).length > 0);
    gate.open();
    expect(await Promise.all([first, second])).toEqual(['sold', 'sold out']);
    expect(await withRowLock(database, Concert, { id: 1 }, buy, { onContention: 'skip' })).toBe('sold out');
  });

  it('is that of the row that is locked, although another one begins to match meanwhile', async () => {
    await database.manager.insert(Concert, [
      { id: 11, hall: 'small' },
      { id: 12, hall: 'large' },
    ]);
    const move = async (concert: Concert) => {
      if (concert.id === 12) await database.manager.update(Concert, { id: 11 }, { hall: 'large' });
    };
    database.subscribers.push({ listenTo: () => Concert, afterLoad: move });
    try {
      expect(await withRowLock(database, Concert, { hall: 'large' }, ({ id }) => id)).toBe(12);
    } finally {
      database.subscribers.pop();
    }
  });
});

describe.each(['REPEATABLE READ', 'SERIALIZABLE'] as const)(
  'a row lock on postgres with %s in the data source',
  (isolationLevel) => {
    let database: DataSource;
    tablesOn(postgresStore, [Product, Shop], (opened) => (database = opened), { isolationLevel });

    it('is granted beside a subscriber that selects at the start of each transaction', async () => {
      const id = await newProduct(database);
      database.subscribers.push({
        afterTransactionStart: ({ queryRunner }) =>
          queryRunner.query(`SELECT set_config('app.tenant', '7', true)`),
      });
      try {
        expect(await withRowLock(database, Product, { id }, ({ stock }) => stock)).toBe(100);
      } finally {
        database.subscribers.pop();
      }
    });
  },
);

describe.each([...databases, ...strictDatabases])('a row lock on %s', (_, storeOf, more = {}) => {
  let database: DataSource;
  tablesOn(storeOf, [Product, Shop], (opened) => (database = opened), more);

  it('twenty workers on three rows lose no change', async () => {
    const ids = [await newProduct(database), await newProduct(database), await newProduct(database)];
    const workers = Array.from({ length: 20 }, async (_, worker) => {
      for (let turn = 0; turn < 3; turn += 1) {
        const id = ids[(worker + turn) % ids.length]!;
        await withRowLock(database, Product, { id, size: 'm' }, sellOne, { waitMs: 60_000 });
      }
    });
    await Promise.all(workers);
    expect(await Promise.all(ids.map((id) => stockOf(database, id)))).toEqual([80, 80, 80]);
    await expectIdlePool(database);
  });

  it('the work sees what was committed in other rows while the call waited', async () => {
    const id = await newProduct(database);
    const sellOnce = () =>
      withRowLock(
        database,
        Product,
        { id, size: 'm' },
        async (_, manager) => {
          if ((await manager.countBy(Product, { id })) > 1) return 'sold out';
          await manager.insert(Product, { id, size: randomUUID().slice(0, 20), stock: 0 });
          return 'sold';
        },
        { waitMs: 60_000, attempts: 20 },
      );
    const outcomes = await Promise.all(Array.from({ length: 8 }, sellOnce));
    expect(outcomes.filter((outcome) => outcome === 'sold')).toHaveLength(1);
    expect(await database.manager.countBy(Product, { id })).toBe(2);
  });

  it('returns what the work returns, and commits', async () => {
    const id = await newProduct(database);
    const value = await withRowLock(database, Product, { id, size: 'm' }, async (product, manager) => {
      expect(product).toMatchObject({ id, size: 'm', stock: 100 });
      expect(product.shop).toBeUndefined();
      await sellOne(product, manager);
      return 'of the work';
    });
    expect(value).toBe('of the work');
    expect(await stockOf(database, id)).toBe(99);
  });

  it('rejects with the very error of the work, and rolls back', async () => {
    const id = await newProduct(database);
    const error = new Error('of the work');
    const call = withRowLock(database, Product, { id }, async (product, manager) => {
      await sellOne(product, manager);
      throw error;
    });
    await expect(call).rejects.toBe(error);
    expect(await stockOf(database, id)).toBe(100);
    await expectIdlePool(database);
  });

  it('does not call the work if no row matches, or it is soft-deleted', async () => {
    const id = await newProduct(database);
    const fail = () => Promise.reject(new Error('called'));
    expect(await withRowLock(database, Product, { id: -1 }, fail)).toBeNull();
    await database.manager.softDelete(Product, { id });
    expect(await withRowLock(database, Product, { id }, fail)).toBeNull();
    await expectIdlePool(database);
  });

  it('refuses a condition that several rows match, unless it may skip rows', async () => {
    const ids = [await newProduct(database), await newProduct(database)];
    const call = withRowLock(database, Product, { id: In(ids) }, sellOne);
    await expect(call).rejects.toThrow(LockConfigError);
    await expect(call).rejects.toThrow('which several do');
    const work = (product: Product) => product.id;
    const id = await withRowLock(database, Product, { id: In(ids) }, work, { onContention: 'skip' });
    expect(ids).toContain(id);
    expect(await withRowLock(database, Product, { shop: { id: ids[0]! } }, work)).toBe(ids[0]);
    await expectIdlePool(database);
  });

  it('refuses wrong arguments', async () => {
    const id = undefined as unknown as number;
    const calls = [
      () => withRowLock(database, Product, { id }, sellOne),
      () => withRowLock(database, Product, {}, sellOne),
      () => withRowLock(database, Product, { id: 1 }, undefined as unknown as typeof sellOne),
      () => withRowLock(database, Product, { id: 1 }, sellOne, { waitMs: -1 }),
      () => withRowLock(database, Product, { id: 1 }, sellOne, { attempts: 0 }),
      () => withRowLock(database, Product, { id: 1 }, sellOne, { onContention: 'skip', waitMs: 5 }),
      () => withRowLock(database, Product, { id: 1 }, sellOne, { onContention: 'fail' as 'skip' }),
      () => withRowLock({} as DataSource, Product, { id: 1 }, sellOne),
    ];
    for (const call of calls) await expect(call()).rejects.toThrow(LockConfigError);
  });

  it('a row that is locked is waited for, refused or skipped', async () => {
    const id = await newProduct(database);
    const gate = openGate();
    const holder = withRowLock(database, Product, { id }, async (product, manager) => {
      await sellOne(product, manager);
      await gate.pass();
    });
    await gate.reached;
    const fail = () => Promise.reject(new Error('called'));
    for (const waitMs of [0, 20]) {
      await expect(withRowLock(database, Product, { id }, fail, { waitMs })).rejects.toThrow(
        LockTimeoutError,
      );
    }
    expect(await withRowLock(database, Product, { id }, fail, { onContention: 'skip' })).toBeNull();
    const waiters = [60_000, Infinity].map((waitMs) =>
      withRowLock(database, Product, { id }, sellOne, { waitMs }),
    );
    gate.open();
    await Promise.all([holder, ...waiters]);
    expect(await stockOf(database, id)).toBe(97);
    await expectIdlePool(database);
  });

  it('the statements of the work have the settings of the session', async () => {
    const id = await newProduct(database);
    const before = await database.transaction((manager) => settingsOf(manager));
    await withRowLock(
      database,
      Product,
      { id },
      async (product, manager) => {
        expect(await settingsOf(manager)).toEqual(before);
      },
      { waitMs: 1_234 },
    );
    await database.transaction(async (manager) => {
      await withRowLock(manager, Product, { id }, () => undefined, { waitMs: 1_234 });
      expect(await settingsOf(manager)).toEqual(before);
    });
    expect(await database.transaction((manager) => settingsOf(manager))).toEqual(before);
  });

  it('is part of the transaction of the caller', async () => {
    const id = await newProduct(database);
    const error = new Error('of the caller');
    const outer = database.transaction(async (manager) => {
      await withRowLock(manager, Product, { id }, sellOne);
      throw error;
    });
    await expect(outer).rejects.toBe(error);
    expect(await stockOf(database, id)).toBe(100);
    await database.transaction((manager) => withRowLock(manager, Product, { id }, sellOne));
    expect(await stockOf(database, id)).toBe(99);
    await expectIdlePool(database);
  });
});

describe.each(sqlServers)('a row lock of several connections on %s', (_, storeOf) => {
  let database: DataSource;
  tablesOn(storeOf, [Product, Shop], (opened) => (database = opened));

  it('reads the newest row even if the caller has read before', async () => {
    const id = await newProduct(database);
    await database.transaction('READ COMMITTED', async (manager) => {
      await manager.findOneBy(Product, { id });
      await withRowLock(database, Product, { id }, sellOne);
      await withRowLock(manager, Product, { id }, sellOne);
    });
    expect(await stockOf(database, id)).toBe(98);
  });

  it('twenty workers that skip take every row once', async () => {
    const ids = [await newProduct(database), await newProduct(database), await newProduct(database)];
    const gate = openGate();
    const taken: number[] = [];
    const take = async (product: Product) => {
      taken.push(product.id);
      await gate.pass();
      return product.id;
    };
    const holders = ids.map(() =>
      withRowLock(database, Product, { id: In(ids) }, take, { onContention: 'skip' }),
    );
    await gate.reachedBy(3);
    const late = Array.from({ length: 17 }, () =>
      withRowLock(database, Product, { id: In(ids) }, take, { onContention: 'skip' }),
    );
    expect(await Promise.all(late)).toEqual(Array(17).fill(null));
    gate.open();
    expect((await Promise.all(holders)).sort()).toEqual([...ids].sort());
    expect(taken).toHaveLength(3);
  });

  /** Both lock one row, and then the one of the other. */
  const deadlock = async (options: { attempts?: number }) => {
    const [a, b] = [await newProduct(database), await newProduct(database)];
    const gate = openGate();
    let calls = 0;
    let deadlocks = 0;
    const transfer = (from: number, to: number) =>
      withRowLock(
        database,
        Product,
        { id: from },
        async (product, manager) => {
          calls += 1;
          if (calls <= 2) await gate.pass();
          await sellOne(product, manager);
          try {
            await withRowLock(manager, Product, { id: to }, sellOne, { waitMs: 60_000 });
          } catch (error) {
            deadlocks += 1;
            throw error;
          }
        },
        { waitMs: 60_000, ...options },
      );
    const transfers = [transfer(a, b), transfer(b, a)];
    await gate.reachedBy(2);
    gate.open();
    const results = await Promise.allSettled(transfers);
    const stock = [await stockOf(database, a), await stockOf(database, b)];
    await expectIdlePool(database);
    return { results, stock, calls, deadlocks };
  };

  it('one of two that deadlock is told so, and has written nothing', async () => {
    const { results, stock, calls } = await deadlock({});
    const [failed] = results.filter(({ status }) => status === 'rejected') as PromiseRejectedResult[];
    expect(failed!.reason).toBeInstanceOf(LockUnavailableError);
    expect(failed!.reason).toMatchObject({
      message: expect.stringContaining('repeat all of it'),
      cause: expect.anything(),
    });
    expect(stock).toEqual([99, 99]);
    expect(calls).toBe(2);
  });

  it('one of two that deadlock is repeated with attempts', async () => {
    const { results, stock, calls, deadlocks } = await deadlock({ attempts: 5 });
    expect(results.map(({ status }) => status)).toEqual(['fulfilled', 'fulfilled']);
    expect(stock).toEqual([98, 98]);
    // On a busy machine the repeated one may be quick enough to deadlock again.
    expect(deadlocks).toBeGreaterThanOrEqual(1);
    expect(calls).toBe(2 + deadlocks);
  });

  it('a connection that is killed under the work loses nothing, and stays in no transaction', async () => {
    const id = await newProduct(database);
    const call = withRowLock(database, Product, { id }, async (product, manager) => {
      await sellOne(product, manager);
      await killConnectionOf(database, manager);
    });
    await expect(call).rejects.toThrow();
    await withRowLock(database, Product, { id }, sellOne, { waitMs: 60_000 });
    expect(await stockOf(database, id)).toBe(99);
    await expectIdlePool(database);
  });

  it('a caller whose transaction waited too long may begin again, with its settings', async () => {
    const id = await newProduct(database);
    const before = await database.transaction((manager) => settingsOf(manager));
    const gate = openGate();
    const holder = withRowLock(database, Product, { id }, () => gate.pass());
    await gate.reached;
    const runner = database.createQueryRunner();
    await runner.startTransaction();
    const late = withRowLock(runner.manager, Product, { id }, sellOne, { waitMs: 20 });
    await expect(late).rejects.toThrow(LockTimeoutError);
    await expect(late).rejects.toThrow('roll it back, and repeat all of it');
    await runner.rollbackTransaction();
    gate.open();
    await holder;
    await runner.startTransaction();
    expect(await settingsOf(runner.manager)).toEqual(before);
    await withRowLock(runner.manager, Product, { id }, sellOne);
    await runner.commitTransaction();
    await runner.release();
    expect(await stockOf(database, id)).toBe(99);
  });

  it('an error that the work has caught does not look like a commit', async () => {
    const id = await newProduct(database);
    const call = withRowLock(database, Product, { id }, async (product, manager) => {
      await sellOne(product, manager);
      await manager.query('SELECT * FROM no_such_table').catch(() => undefined);
    });
    if (database.options.type === 'postgres') {
      await expect(call).rejects.toThrow(/the row of Product .* the database has rolled it back/);
      expect(await stockOf(database, id)).toBe(100);
    } else {
      await call;
      expect(await stockOf(database, id)).toBe(99);
    }
  });
});
