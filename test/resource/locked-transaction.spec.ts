import { AsyncLocalStorage } from 'node:async_hooks';
import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { Test, type TestingModule } from '@nestjs/testing';
import { Column, DataSource, Entity, In, PrimaryColumn } from 'typeorm';
import { memoryBackend } from '../../lib/backends/memory/index.js';
import { claimRow, withLockedTransaction } from '../../lib/backends/typeorm/index.js';
import {
  DistributedLockModule,
  LockConfigError,
  LockLostError,
  LockService,
  LockTimeoutError,
} from '../../lib/index.js';
import { sqlServers } from '../stores.js';
import { until } from '../until.js';
import { databases, tablesOn } from './databases.js';

@Entity()
class Product {
  @PrimaryColumn('int')
  id!: number;

  @Column('int')
  stock!: number;
}

describe.each(databases)('a locked transaction on %s', (_, storeOf) => {
  let database: DataSource;
  let app: TestingModule;
  tablesOn(storeOf, [Product], (opened) => (database = opened));
  beforeAll(async () => {
    app = await Test.createTestingModule({
      imports: [DistributedLockModule.forRoot({ backend: memoryBackend(), namespace: randomUUID() })],
      providers: [{ provide: DataSource, useValue: database }],
    }).compile();
    // The memory of the process, whose data source the spec closes by itself.
    await app.init();
  });
  afterAll(() => app.close());

  const stockOf = async (id: number) => (await database.manager.findOneByOrFail(Product, { id })).stock;

  it('is committed before the next holder begins', async () => {
    await database.manager.insert(Product, { id: 1, stock: 10 });
    const sell = () =>
      withLockedTransaction(database, 'product:1', async (manager) => {
        const { stock } = await manager.findOneByOrFail(Product, { id: 1 });
        await manager.update(Product, { id: 1 }, { stock: stock - 1 });
      });
    await Promise.all(Array.from({ length: 10 }, sell));
    expect(await stockOf(1)).toBe(0);
  });

  it('is rolled back where the work fails, or the lock is lost before COMMIT', async () => {
    await database.manager.insert(Product, { id: 2, stock: 10 });
    const sell = (then: (token: bigint) => Promise<unknown>) =>
      withLockedTransaction(database, 'product:2', { waitMs: 0 }, async (manager, lock) => {
        await manager.update(Product, { id: 2 }, { stock: 0 });
        await then(lock.fencingToken);
      });
    const failure = new Error('of the caller');
    await expect(sell(() => Promise.reject(failure))).rejects.toBe(failure);
    const locks = app.get(LockService);
    const lose = async (fencingToken: bigint) => {
      await locks.forceRelease('product:2', { fencingToken });
      await expect(locks.inspect('product:2')).resolves.toBeNull();
    };
    const lost = withLockedTransaction(database, 'product:2', async (manager, lock) => {
      await manager.update(Product, { id: 2 }, { stock: 0 });
      await lose(lock.fencingToken);
      await expect(lock.extend(10_000)).rejects.toThrow(LockLostError);
    });
    await expect(lost).rejects.toThrow(LockLostError);
    expect(await stockOf(2)).toBe(10);
  });

  it('answers what the work answers, and takes the service that it is given', async () => {
    const locks = app.get(LockService);
    const work = () => withLockedTransaction(database, 'given', { locks }, () => 'worked');
    expect(await work()).toBe('worked');
  });

  it('waits for those of other keys where they share a connection', async () => {
    const keys = [11, 12, 13, 14];
    const insert = (id: number) =>
      withLockedTransaction(database, `product:${id}`, (manager) =>
        manager.insert(Product, { id, stock: id }),
      );
    await Promise.all(keys.map(insert));
    expect(await Promise.all(keys.map(stockOf))).toEqual(keys);
  });

  it('is not begun without a lock service', async () => {
    const stranger = new DataSource(database.options);
    await expect(withLockedTransaction(stranger, 'key', () => undefined)).rejects.toThrow(LockConfigError);
  });
});

describe.each(sqlServers)('a locked transaction that the database has rolled back on %s', (_, storeOf) => {
  let database: DataSource;
  let app: TestingModule;
  tablesOn(storeOf, [Product], (opened) => (database = opened));
  beforeAll(async () => {
    app = await Test.createTestingModule({
      imports: [DistributedLockModule.forRoot({ backend: memoryBackend(), namespace: randomUUID() })],
      providers: [{ provide: DataSource, useValue: database }],
    }).compile();
    await app.init();
  });
  afterAll(() => app.close());

  it('is an error though the helper that failed was not awaited', async () => {
    await database.manager.insert(Product, { id: 2, stock: 10 });
    const tooLarge = 2 ** 40;
    const helpers: Promise<unknown>[] = [];
    const locked = withLockedTransaction(database, 'product:2', (manager) => {
      const claim = (stock: number, next: number) =>
        claimRow(manager, Product, { from: { id: 2, stock }, to: { stock: next } });
      helpers.push(claim(10, 9), claim(9, tooLarge));
      for (const helper of helpers) helper.catch(() => undefined);
      return 'sold';
    });
    const isRolledBack = database.options.type === 'postgres';
    if (isRolledBack) await expect(locked).rejects.toThrow('has rolled it back');
    else expect(await locked).toBe('sold');
    await expect(helpers[1]).rejects.toThrow(/range/);
    expect(await database.manager.findOneBy(Product, { id: 2 })).toMatchObject({
      stock: isRolledBack ? 10 : 9,
    });
  });

  it('is an error though the work has caught that of its statement', async () => {
    await database.manager.insert(Product, { id: 1, stock: 10 });
    // What a deadlock does on MySQL and MariaDB, without the choice of its victim.
    const failure = database.options.type === 'postgres' ? 'SELECT no_such_column' : 'ROLLBACK';
    const locked = withLockedTransaction(database, 'product:1', async (manager) => {
      await manager.update(Product, { id: 1 }, { stock: 9 });
      await manager.query(failure).catch(() => undefined);
      return 'sold';
    });
    await expect(locked).rejects.toThrow(LockConfigError);
    await expect(locked).rejects.toThrow('has rolled it back');
    expect(await database.manager.findOneBy(Product, { id: 1 })).toMatchObject({ stock: 10 });
  });
});

const onOneConnection = databases.filter(([name]) => name === 'better-sqlite3' || name === 'libsql');

describe.each(onOneConnection)('a locked transaction on the only connection of %s', (_, storeOf) => {
  let database: DataSource;
  let app: TestingModule;
  tablesOn(storeOf, [Product], (opened) => (database = opened));
  beforeAll(async () => {
    app = await Test.createTestingModule({
      imports: [DistributedLockModule.forRoot({ backend: memoryBackend(), namespace: randomUUID() })],
      providers: [{ provide: DataSource, useValue: database }],
    }).compile();
    await app.init();
  });
  afterAll(() => app.close());

  const stockOf = async (id: number) => (await database.manager.findOneByOrFail(Product, { id })).stock;

  it('does not wait for itself', async () => {
    const inner = () => withLockedTransaction(database, 'inner', () => 'worked');
    await expect(withLockedTransaction(database, 'outer', inner)).rejects.toThrow(LockConfigError);
    expect(await inner()).toBe('worked');
  });

  it('gives up after waitMs, or when its signal aborts, and keeps nobody waiting', async () => {
    const signal = AbortSignal.abort(new Error('of the caller'));
    await withLockedTransaction(database, 'first', async () => {
      const outside = (options: object) => () =>
        withLockedTransaction(database, 'key', options, () => undefined);
      const waits = [outside({ waitMs: 0 }), outside({ signal })];
      const [late, aborted] = await Promise.allSettled(waits.map((wait) => outsideOfTurn(wait)));
      expect(late).toMatchObject({ reason: expect.any(LockTimeoutError) as unknown });
      expect(aborted).toMatchObject({ reason: { message: 'of the caller' } });
    });
    expect(await withLockedTransaction(database, 'next', () => 'worked')).toBe('worked');
  });

  it('is apart from a transaction of others that begins meanwhile', async () => {
    let isAsked = false;
    const locked = withLockedTransaction(database, 'product:4', async (manager) => {
      await manager.insert(Product, { id: 4, stock: 10 });
      await until(() => isAsked);
      throw new Error('sold out');
    });
    await until(() => database.createQueryRunner().isTransactionActive);
    const other = database.transaction((manager) => manager.insert(Product, { id: 5, stock: 10 }));
    isAsked = true;
    await expect(locked).rejects.toThrow('sold out');
    await other;
    expect(await database.manager.findBy(Product, { id: In([4, 5]) })).toEqual([{ id: 5, stock: 10 }]);
  });

  it('waits for a transaction of others, and so does a helper outside of one', async () => {
    await database.manager.insert(Product, { id: 6, stock: 10 });
    let begun = false;
    let fail = (): void => undefined;
    const mayFail = new Promise<void>((resolve) => (fail = resolve));
    const other = database.transaction(async () => {
      begun = true;
      await mayFail;
      throw new Error('of another request');
    });
    other.catch(() => undefined);
    await until(() => begun);
    const claim = claimRow(database, Product, { from: { id: 6, stock: 10 }, to: { stock: 9 } });
    const locked = withLockedTransaction(database, 'product:7', (manager) =>
      manager.insert(Product, { id: 7, stock: 1 }),
    );
    // Both could have been sent by then.
    await new Promise((resolve) => setTimeout(resolve, 50));
    fail();
    await expect(other).rejects.toThrow('of another request');
    await Promise.all([claim, locked]);
    const found = await database.manager.find(Product, { where: { id: In([6, 7]) }, order: { id: 'ASC' } });
    expect(found.map(({ stock }) => stock)).toEqual([9, 1]);
  });

  it('leaves the connection free after the database has rolled it back', async () => {
    await database.manager.insert(Product, { id: 8, stock: 10 });
    const { tablePath } = database.getMetadata(Product);
    await database.query(
      `CREATE TRIGGER sold_out_${tablePath} BEFORE UPDATE ON ${tablePath} WHEN new.stock < 0
       BEGIN SELECT RAISE(ROLLBACK, 'sold out'); END`,
    );
    const sell = (stock: number, onError: (error: Error) => unknown) =>
      withLockedTransaction(database, 'product:8', async (manager) => {
        await manager.update(Product, { id: 8 }, { stock: 9 });
        await manager.update(Product, { id: 8 }, { stock }).catch(onError);
      });
    const rethrow = (error: Error) => Promise.reject(error);
    await expect(sell(-1, rethrow)).rejects.toThrow('sold out');
    expect(await stockOf(8)).toBe(10);
    await expect(sell(-1, () => undefined)).rejects.toThrow('has rolled it back');
    expect(await stockOf(8)).toBe(10);
    await sell(7, rethrow);
    expect(await stockOf(8)).toBe(7);
  });

  it('is committed after a transaction that began within it has ended', async () => {
    const locks = app.get(LockService);
    let endOther = (): void => undefined;
    const otherMayEnd = new Promise<void>((resolve) => (endOther = resolve));
    let other: Promise<void> | undefined;
    const locked = withLockedTransaction(database, 'product:3', async (manager) => {
      other = database.transaction(() => otherMayEnd);
      await manager.insert(Product, { id: 3, stock: 10 });
    });
    await until(() => other !== undefined);
    await database.query('SELECT 1');
    expect(await locks.tryAcquire('product:3')).toBeNull();
    endOther();
    await Promise.all([locked, other]);
    expect(database.createQueryRunner().isTransactionActive).toBe(false);
    expect(await locks.inspect('product:3')).toBeNull();
  });
});

/** As another request: outside of the asynchronous context of this one. */
const outsideOfTurn = AsyncLocalStorage.bind(<T>(work: () => Promise<T>) => work());
