import { AsyncLocalStorage } from 'node:async_hooks';
import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Test, type TestingModule } from '@nestjs/testing';
import {
  Column,
  DataSource,
  Entity,
  type EntityManager,
  type EntitySubscriberInterface,
  In,
  PrimaryColumn,
  type QueryRunner,
} from 'typeorm';
import { memoryBackend } from '../../lib/backends/memory/index.js';
import {
  claimRow,
  fencedFindOne,
  fencedUpdate,
  withLockedTransaction,
  withRowLock,
} from '../../lib/backends/typeorm/index.js';
import {
  DistributedLockModule,
  LockConfigError,
  LockLostError,
  LockService,
  LockTimeoutError,
} from '../../lib/index.js';
import { postgresStore, sqlServers } from '../support/stores.js';
import { until } from '../support/until.js';
import { databases, tablesOn } from './databases.js';
import { Task } from './task.js';
import { transactionOnRunner } from './transaction-on-runner.js';

@Entity()
class Product {
  @PrimaryColumn('int')
  id!: number;

  @Column('int')
  stock!: number;
}

/** Its lock module finds the data source, which the spec closes by itself. */
async function applicationWith(database: DataSource): Promise<TestingModule> {
  const app = await Test.createTestingModule({
    imports: [DistributedLockModule.forRoot({ backend: memoryBackend(), namespace: randomUUID() })],
    providers: [{ provide: DataSource, useValue: database }],
  }).compile();
  return app.init();
}

/** The subscriber fails when it is called for the nth time. */
async function whileSubscriberFails(
  database: DataSource,
  event: string,
  failsAt: number,
  during: () => Promise<unknown>,
): Promise<void> {
  let times = 0;
  const fail = () => (times += 1) === failsAt && Promise.reject(new Error('not this one'));
  const subscriber = { [event]: fail } as EntitySubscriberInterface;
  database.subscribers.push(subscriber);
  try {
    await during();
  } finally {
    database.subscribers.splice(database.subscribers.indexOf(subscriber), 1);
  }
}

describe.each(databases)('a locked transaction on %s', (_, storeOf) => {
  let database: DataSource;
  let app: TestingModule;
  tablesOn(storeOf, [Product], (opened) => (database = opened));
  beforeAll(async () => {
    app = await applicationWith(database);
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

  it('returns what the work returns, and uses the service that it is given', async () => {
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

  it.each([0, 20])(
    'is committed after a nested one that is not awaited, begun %i ms before its end',
    async (ms) => {
      const id = 20 + ms;
      await database.manager.insert(Product, { id, stock: 10 });
      let nested: Promise<unknown> | undefined;
      await withLockedTransaction(database, `product:${id}`, async (manager) => {
        await manager.update(Product, { id }, { stock: 9 });
        nested = manager.transaction(async (inner) => {
          await inner.insert(Product, { id: id + 1, stock: 1 });
          await delay(50);
        });
        if (ms > 0) await delay(ms);
      });
      // In a session of its own, which sees what is committed.
      const other = await new DataSource({ ...database.options, synchronize: false }).initialize();
      try {
        const found = await other.manager.findBy(Product, { id: In([id, id + 1]) });
        expect(found.map(({ stock }) => stock).sort()).toEqual([1, 9]);
      } finally {
        await other.destroy();
      }
      await nested;
    },
  );

  it('is rolled back after a nested one that is not awaited', async () => {
    await database.manager.insert(Product, { id: 30, stock: 10 });
    let nested: Promise<unknown> | undefined;
    const locked = withLockedTransaction(database, 'product:30', async (manager) => {
      await manager.update(Product, { id: 30 }, { stock: 9 });
      nested = manager.transaction((inner) => inner.insert(Product, { id: 31, stock: 1 }));
      throw new Error('sold out');
    });
    await expect(locked).rejects.toThrow('sold out');
    await nested;
    expect(await database.manager.findBy(Product, { id: In([30, 31]) })).toEqual([{ id: 30, stock: 10 }]);
  });

  it('ends where the database has rolled back all of it in a nested one', async () => {
    await database.manager.insert(Product, { id: 32, stock: 10 });
    const locked = withLockedTransaction(database, 'product:32', async (manager) => {
      await manager.update(Product, { id: 32 }, { stock: 9 });
      const nested = manager.transaction(async (inner) => {
        // What a deadlock does on MySQL and MariaDB.
        await inner.query('ROLLBACK');
        throw new Error('deadlock');
      });
      await nested.catch(() => undefined);
    });
    await expect(locked).rejects.toThrow();
    expect(await stockOf(32)).toBe(10);
  });

  it('is rolled back where a nested one could not be', async () => {
    await database.manager.insert(Product, { id: 33, stock: 10 });
    const locked = withLockedTransaction(database, 'product:33', async (manager) => {
      await manager.update(Product, { id: 33 }, { stock: 9 });
      const mend = failing(manager.queryRunner, /^ROLLBACK TO/);
      const nested = manager.transaction(async (inner) => {
        await inner.update(Product, { id: 33 }, { stock: 8 });
        throw new Error('sold out');
      });
      await expect(nested).rejects.toThrow('sold out');
      mend();
      await manager.transaction((next) => next.insert(Product, { id: 34, stock: 1 }));
    });
    await expect(locked).rejects.toThrow(LockConfigError);
    await expect(locked).rejects.toThrow('could not be rolled back');
    await database.transaction((manager) => manager.insert(Product, { id: 35, stock: 1 }));
    const found = await database.manager.find(Product, {
      where: { id: In([33, 34, 35]) },
      order: { id: 'ASC' },
    });
    expect(found.map(({ id, stock }) => [id, stock])).toEqual([
      [33, 10],
      [35, 1],
    ]);
  });

  it('is committed where a subscriber fails after a nested one has begun', async () => {
    await database.manager.insert(Product, { id: 50, stock: 10 });
    await whileSubscriberFails(database, 'afterTransactionStart', 2, () => sellAroundRefused(50));
    expect(await stockOf(50)).toBe(9);
  });

  it('is committed or rolled back as a whole where a subscriber fails before a nested one begins', async () => {
    await database.manager.insert(Product, { id: 51, stock: 10 });
    const outcomes: string[] = [];
    await whileSubscriberFails(database, 'beforeTransactionStart', 2, async () => {
      outcomes.push(
        await sellAroundRefused(51).then(
          () => 'committed',
          () => 'rolled back',
        ),
      );
    });
    // The only connection of SQLite cannot be closed, so that the transaction goes on there.
    const isSqlite = database.options.type === 'better-sqlite3';
    expect(outcomes).toEqual([isSqlite ? 'committed' : 'rolled back']);
    expect(await stockOf(51)).toBe(isSqlite ? 9 : 10);
  });

  const sellAroundRefused = (id: number) =>
    withLockedTransaction(database, `product:${id}`, async (manager) => {
      await manager.update(Product, { id }, { stock: 9 });
      const nested = manager.transaction((inner) => inner.update(Product, { id }, { stock: 8 }));
      await expect(nested).rejects.toThrow('not this one');
    });

  it('leaves no open transaction behind where a subscriber fails before ROLLBACK', async () => {
    await database.manager.insert(Product, { id: 52, stock: 10 });
    await whileSubscriberFails(database, 'beforeTransactionRollback', 1, async () => {
      const locked = withLockedTransaction(database, 'product:52', async (manager) => {
        await manager.update(Product, { id: 52 }, { stock: 9 });
        throw new Error('sold out');
      });
      await expect(locked).rejects.toThrow();
    });
    await withLockedTransaction(database, 'product:52', (manager) =>
      manager.insert(Product, { id: 53, stock: 1 }),
    );
    expect([await stockOf(52), await stockOf(53)]).toEqual([10, 1]);
  });

  it('goes on where a nested one could not begin', async () => {
    await database.manager.insert(Product, { id: 36, stock: 10 });
    const sell = (failure?: Error) =>
      withLockedTransaction(database, 'product:36', async (manager) => {
        await manager.update(Product, { id: 36 }, { stock: 9 });
        const mend = failing(manager.queryRunner, /^SAVEPOINT/);
        await expect(manager.transaction(() => Promise.resolve())).rejects.toThrow('of the driver');
        mend();
        await manager.insert(Product, { id: 37, stock: 1 });
        if (failure) throw failure;
      });
    await expect(sell(new Error('sold out'))).rejects.toThrow('sold out');
    expect(await database.manager.findBy(Product, { id: In([36, 37]) })).toEqual([{ id: 36, stock: 10 }]);
    await sell();
    expect(await Promise.all([36, 37].map(stockOf))).toEqual([9, 1]);
  });

  it.each([false, true])(
    'is rolled back as a whole where one within a nested one could not begin (the nested one fails: %s)',
    async (doesFail) => {
      const id = doesFail ? 1_050 : 1_040;
      await database.manager.insert(Product, { id, stock: 10 });
      const locked = withLockedTransaction(database, `product:${id}`, async (manager) => {
        await manager.update(Product, { id }, { stock: 9 });
        const nested = manager.transaction(async (within) => {
          const mend = failing(manager.queryRunner, /^SAVEPOINT/);
          await within.transaction(() => Promise.resolve()).catch(() => undefined);
          mend();
          await within.insert(Product, { id: id + 1, stock: 1 });
          if (doesFail) throw new Error('sold out');
        });
        await nested.catch(() => undefined);
        await manager.insert(Product, { id: id + 2, stock: 1 });
      });
      await expect(locked).rejects.toThrow(LockConfigError);
      const written = await database.manager.findBy(Product, { id: In([id, id + 1, id + 2]) });
      expect(written).toEqual([{ id, stock: 10 }]);
    },
  );

  it('is not begun with missing arguments', async () => {
    const call = withLockedTransaction as (...args: unknown[]) => Promise<unknown>;
    const work = () => expect.unreachable();
    await expect(call(database, work)).rejects.toThrow('got a data source, a function, undefined');
    await expect(call(database, 'key')).rejects.toThrow("got a data source, 'key', undefined");
    await expect(call('key', work)).rejects.toThrow("got 'key', a function, undefined");
    for (const args of [
      [database, work],
      [database, 'key'],
      ['key', work],
    ])
      await expect(call(...args)).rejects.toThrow(LockConfigError);
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
    app = await applicationWith(database);
  });
  afterAll(() => app.close());

  it('is nowhere half committed, also without a lock, where a subscriber refuses a nested one', async () => {
    const of = (id: number) => ({ id, stock: 10 });
    await database.manager.insert(Product, [of(54), of(55)]);
    const claim = (manager: EntityManager, id: number) =>
      claimRow(manager, Product, { from: of(id), to: { stock: 9 } });
    await whileSubscriberFails(database, 'beforeTransactionStart', 2, async () => {
      const transaction = database.transaction(async (manager) => {
        await claim(manager, 54);
        await manager.transaction(() => Promise.resolve()).catch(() => undefined);
        await claim(manager, 55);
      });
      await expect(transaction).rejects.toThrow();
    });
    const found = await database.manager.findBy(Product, { id: In([54, 55]) });
    expect(found.map(({ stock }) => stock)).toEqual([10, 10]);
  });

  it('is an error even if the helper that failed was not awaited', async () => {
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

  it('is not followed by statements that are committed by themselves', async () => {
    await database.manager.insert(Product, { id: 3, stock: 10 });
    const locked = withLockedTransaction(database, 'product:3', async (manager) => {
      await manager.query('SELECT no_such_column').catch(() => undefined);
      // PostgreSQL refuses its savepoint; MySQL and MariaDB go on after such an error.
      await manager.transaction(() => Promise.resolve()).catch(() => undefined);
      await manager.insert(Product, { id: 4, stock: 1 });
      throw new Error('sold out');
    });
    await expect(locked).rejects.toThrow(/sold out|aborted/);
    expect(await database.manager.findBy(Product, { id: 4 })).toEqual([]);
  });

  it('is not committed by the next one where ROLLBACK could not be sent', async () => {
    await database.manager.insert(Product, { id: 5, stock: 10 });
    const locked = withLockedTransaction(database, 'product:5', async (manager) => {
      await manager.update(Product, { id: 5 }, { stock: 9 });
      failing(manager.queryRunner, /^ROLLBACK$/);
      throw new Error('sold out');
    });
    await expect(locked).rejects.toThrow('sold out');
    await database.transaction((manager) => manager.insert(Product, { id: 6, stock: 1 }));
    expect(await database.manager.findBy(Product, { id: In([5, 6]) })).toEqual(
      expect.arrayContaining([
        { id: 5, stock: 10 },
        { id: 6, stock: 1 },
      ]),
    );
  });

  it('is an error even if the work has caught that of its statement', async () => {
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

describe('a locked transaction on postgres with a query_timeout', () => {
  let database: DataSource;
  let app: TestingModule;
  tablesOn(postgresStore, [Product, Task], (opened) => (database = opened), {
    poolSize: 1,
    extra: { query_timeout: 300 },
  });
  beforeAll(async () => {
    app = await applicationWith(database);
  });
  afterAll(() => app.close());

  it.each([1, 2])('is neither resolved nor committed later, depth %i', async (depth) => {
    const id = 10 * depth;
    await database.manager.insert(Product, [
      { id, stock: 10 },
      { id: id + 1, stock: 10 },
    ]);
    const other = await new DataSource({ ...database.options, synchronize: false }).initialize();
    try {
      const blocker = other.createQueryRunner();
      await blocker.startTransaction();
      await blocker.manager.update(Product, { id: id + 1 }, { stock: 7 });
      const locked = withLockedTransaction(database, `product:${id}`, async (manager) => {
        await manager.update(Product, { id }, { stock: 9 });
        const blocked = () => manager.update(Product, { id: id + 1 }, { stock: 9 });
        if (depth === 1) return blocked();
        return manager.transaction(blocked).catch(() => undefined);
      });
      await expect(locked).rejects.toThrow(/timeout/);
      await blocker.rollbackTransaction();
      await blocker.release();
      await database.transaction((manager) => manager.insert(Product, { id: id + 2, stock: 1 }));
      const found = await other.manager.find(Product, { order: { id: 'ASC' } });
      expect(found.filter((row) => row.id >= id).map(({ stock }) => stock)).toEqual([10, 10, 1]);
    } finally {
      await other.destroy();
    }
  });

  it.each<[string, () => Promise<unknown>]>([
    ['withLockedTransaction', () => withLockedTransaction(database, 'any', () => 'has run')],
    ['fencedUpdate', () => fencedUpdate(database, Task, { state: 'WAITING' }, {}, 1n)],
    ['fencedFindOne', () => fencedFindOne(database, Task, { state: 'WAITING' }, 1n)],
    ['withRowLock', () => withRowLock(database, Task, { id: 1 }, () => 'has run')],
    [
      'withRowLock with a query runner',
      async () => {
        const runner = database.createQueryRunner();
        const locked = withRowLock(runner.manager, Task, { id: 1 }, () => 'has run');
        return locked.finally(() => runner.release());
      },
    ],
  ])('leaves no transaction behind whose BEGIN got no answer in time: %s', async (_name, call) => {
    await database.manager.clear(Task);
    await database.manager.insert(Task, { id: 1 });
    const [{ pid }] = await database.query<[{ pid: number }]>('SELECT pg_backend_pid() AS pid');
    const subscriber: EntitySubscriberInterface = {
      beforeQuery({ query }) {
        if (query === 'START TRANSACTION') process.kill(pid, 'SIGSTOP');
      },
    };
    database.subscribers.push(subscriber);
    try {
      await expect(call()).rejects.toThrow(/timeout/);
    } finally {
      database.subscribers.splice(database.subscribers.indexOf(subscriber), 1);
      process.kill(pid, 'SIGCONT');
    }
    const claim = { from: { id: 1, state: 'WAITING' }, to: { state: 'RUNNING' } };
    expect(await claimRow(database, Task, claim)).toMatchObject({ state: 'RUNNING' });
    const other = await new DataSource({ ...database.options, synchronize: false }).initialize();
    try {
      expect(await other.manager.findOneBy(Task, { id: 1 })).toMatchObject({ state: 'RUNNING' });
    } finally {
      await other.destroy();
    }
  });
});

const onOneConnection = databases.filter(([name]) => name === 'better-sqlite3' || name === 'libsql');

describe.each(onOneConnection)('a locked transaction on the only connection of %s', (_, storeOf) => {
  let database: DataSource;
  let app: TestingModule;
  tablesOn(storeOf, [Product], (opened) => (database = opened));
  beforeAll(async () => {
    app = await applicationWith(database);
  });
  afterAll(() => app.close());

  const stockOf = async (id: number) => (await database.manager.findOneByOrFail(Product, { id })).stock;

  type Begin = (work: (manager: EntityManager) => Promise<unknown>) => Promise<unknown>;
  const transaction: Begin = (work) => database.transaction(work);
  const onRunner: Begin = (work) => transactionOnRunner(database, work);

  it('does not wait for itself', async () => {
    const inner = () => withLockedTransaction(database, 'inner', () => 'worked');
    await expect(withLockedTransaction(database, 'outer', inner)).rejects.toThrow(LockConfigError);
    expect(await inner()).toBe('worked');
  });

  it('gives up after waitMs, or when its signal aborts, and blocks no other', async () => {
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

  it.each([
    ['transaction()', 40, transaction],
    ['a query runner', 43, onRunner],
  ])(
    'is whole even if a transaction of %s that waits for it gives up',
    async (_, id, begin) => {
      await database.manager.insert(Product, { id, stock: 100 });
      const locked = withLockedTransaction(database, 'product:40', async (manager) => {
        await manager.transaction(async (nested) => {
          await nested.update(Product, { id }, { stock: 0 });
          await delay(10_500);
          await nested.insert(Product, { id: id + 1, stock: 100 });
        });
        throw new Error('sold out');
      });
      await until(() => database.createQueryRunner().isTransactionActive);
      await expect(begin(() => Promise.resolve())).rejects.toThrow(LockTimeoutError);
      await expect(locked).rejects.toThrow('sold out');
      expect(await database.manager.findBy(Product, { id: In([id, id + 1]) })).toEqual([{ id, stock: 100 }]);
    },
    20_000,
  );

  it('lets a transaction that waits begin before locked ones that came later', async () => {
    const order: string[] = [];
    const locked = (name: string) =>
      withLockedTransaction(database, name, async () => {
        order.push(name);
        await delay(20);
      });
    const all = ['first', 'second', 'third'].map(locked);
    await until(() => database.createQueryRunner().isTransactionActive);
    await database.transaction(() => Promise.resolve(order.push('other')));
    await Promise.all(all);
    expect(order).toEqual(['first', 'other', 'second', 'third']);
  });

  it('lets transactions that waited run one after the other, so that none is undone with another', async () => {
    const locked = withLockedTransaction(database, 'any', () => delay(50));
    await until(() => database.createQueryRunner().isTransactionActive);
    const first = database.transaction((manager) => manager.insert(Product, { id: 70, stock: 1 }));
    await delay(10);
    const second = database.transaction(async (manager) => {
      await manager.insert(Product, { id: 71, stock: 1 });
      await delay(20);
      throw new Error('of another request');
    });
    await expect(second).rejects.toThrow('of another request');
    await Promise.all([locked, first]);
    expect(await database.manager.findBy(Product, { id: In([70, 71]) })).toEqual([{ id: 70, stock: 1 }]);
  });

  it.each([
    ['transaction()', 72, transaction],
    ['query runners', 77, onRunner],
  ])('keeps two transactions of one turn apart, those of %s', async (_, id, begin) => {
    await withLockedTransaction(database, 'any', () => undefined);
    const first = begin((manager) => manager.insert(Product, { id, stock: 1 }));
    const second = begin(async (manager) => {
      await manager.insert(Product, { id: id + 1, stock: 1 });
      throw new Error('of another request');
    });
    await expect(second).rejects.toThrow('of another request');
    await first;
    expect(await database.manager.findBy(Product, { id: In([id, id + 1]) })).toEqual([{ id, stock: 1 }]);
  });

  it('leaves saves beside a helper as they are without it', async () => {
    await database.manager.insert(Product, { id: 74, stock: 10 });
    const claim = claimRow(database, Product, { from: { id: 74, stock: 10 }, to: { stock: 9 } });
    const saves = await Promise.allSettled([
      database.manager.save(Product, { id: 75, stock: 1 }),
      database.manager.save(Product, { id: 76, stock: null as unknown as number }),
    ]);
    await claim;
    expect(saves.map(({ status }) => status)).toEqual(['fulfilled', 'rejected']);
    expect(await database.manager.findBy(Product, { id: In([75, 76]) })).toEqual([{ id: 75, stock: 1 }]);
  });

  it.each(['afterTransactionCommit', 'afterTransactionRollback'])(
    'lets a subscriber save in %s while another request waits to save',
    async (event) => {
      await withLockedTransaction(database, 'any', () => undefined);
      const id = event === 'afterTransactionCommit' ? 80 : 83;
      let wasCalled = false;
      let hasSaved = false;
      const subscriber = {
        async [event]({ manager }: { manager: EntityManager }) {
          if (wasCalled) return;
          wasCalled = true;
          await delay(20);
          await manager.save(Product, { id: id + 2, stock: 1 });
          hasSaved = true;
        },
      } as EntitySubscriberInterface;
      database.subscribers.push(subscriber);
      try {
        const first = database.transaction((manager) => {
          if (event === 'afterTransactionRollback') throw new Error('of the first request');
          return manager.insert(Product, { id, stock: 1 });
        });
        first.catch(() => undefined);
        await until(() => wasCalled);
        const [, second] = await Promise.allSettled([
          first,
          database.manager.save(Product, { id: id + 1, stock: 1 }),
        ]);
        expect(second.status).toBe('fulfilled');
        await until(() => hasSaved);
      } finally {
        database.subscribers.splice(database.subscribers.indexOf(subscriber), 1);
      }
      expect(await database.manager.countBy(Product, { id: In([id + 1, id + 2]) })).toBe(2);
    },
  );

  it('lets a subscriber save in afterTransactionCommit while a locked transaction waits', async () => {
    await withLockedTransaction(database, 'any', () => undefined);
    let hasSaved = false;
    const subscriber = {
      async afterTransactionCommit({ manager }: { manager: EntityManager }) {
        if (hasSaved) return;
        hasSaved = true;
        await delay(20);
        await manager.save(Product, { id: 88, stock: 1 });
      },
    } as EntitySubscriberInterface;
    database.subscribers.push(subscriber);
    try {
      const first = database.transaction(async (manager) => {
        await delay(20);
        await manager.insert(Product, { id: 86, stock: 1 });
      });
      await until(() => database.createQueryRunner().isTransactionActive);
      const locked = withLockedTransaction(database, 'any', (manager) =>
        manager.insert(Product, { id: 87, stock: 1 }),
      );
      await Promise.all([first, locked]);
    } finally {
      database.subscribers.splice(database.subscribers.indexOf(subscriber), 1);
    }
    expect(await database.manager.countBy(Product, { id: In([86, 87, 88]) })).toBe(3);
  });

  it('does not let a subscriber that never returns after a commit block other requests', async () => {
    await withLockedTransaction(database, 'any', () => undefined);
    let wasCalled = false;
    let release = (): void => undefined;
    const held = new Promise<void>((resolve) => (release = resolve));
    const subscriber = {
      afterTransactionCommit() {
        if (wasCalled) return Promise.resolve();
        wasCalled = true;
        return held;
      },
    } as EntitySubscriberInterface;
    database.subscribers.push(subscriber);
    const first = database.manager.save(Product, { id: 90, stock: 1 });
    try {
      await until(() => wasCalled);
      await database.manager.save(Product, { id: 91, stock: 1 });
      await withLockedTransaction(database, 'any', (manager) =>
        manager.insert(Product, { id: 92, stock: 1 }),
      );
    } finally {
      release();
      database.subscribers.splice(database.subscribers.indexOf(subscriber), 1);
    }
    await first;
    expect(await database.manager.countBy(Product, { id: In([90, 91, 92]) })).toBe(3);
  });

  it('leaves saves of one turn of the event loop as they are without it', async () => {
    await withLockedTransaction(database, 'any', () => undefined);
    const products = [
      { id: 60, stock: null as unknown as number },
      { id: 61, stock: 1 },
    ];
    const saves = await Promise.allSettled(
      products.map((product) => database.manager.save(Product, product)),
    );
    expect(saves.map(({ status }) => status)).toEqual(['rejected', 'fulfilled']);
    expect(await database.manager.findBy(Product, { id: In([60, 61]) })).toEqual([{ id: 61, stock: 1 }]);
  });

  it('begins though others begin transactions without a pause', async () => {
    let isLocked = false;
    let after = 0;
    const others = async () => {
      while (!isLocked && after < 100) {
        await database.transaction(() => delay(5));
        after += 1;
      }
    };
    const running = others();
    await until(() => after > 0);
    const before = after;
    await withLockedTransaction(database, 'between', () => (isLocked = true));
    await running;
    expect(after - before).toBeLessThan(5);
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

  it('begins and commits after a transaction that could neither begin nor be rolled back', async () => {
    await withLockedTransaction(database, 'first', () => undefined);
    const mend = failing(database.createQueryRunner(), /^(BEGIN|ROLLBACK)/);
    await expect(database.transaction(() => Promise.resolve())).rejects.toThrow('of the driver');
    mend();
    await database.transaction((manager) => manager.insert(Product, { id: 50, stock: 10 }));
    await withLockedTransaction(database, 'next', (manager) =>
      manager.insert(Product, { id: 51, stock: 10 }),
    );
    expect(database.createQueryRunner().isTransactionActive).toBe(false);
    expect(await Promise.all([50, 51].map(stockOf))).toEqual([10, 10]);
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

/** Fails such statements of the query runner before they are sent, as a timeout of the driver does, until it is repaired. */
function failing(runner: QueryRunner | undefined, statements: RegExp): () => void {
  const broken = runner as { query: (...args: [string, ...unknown[]]) => Promise<unknown> };
  const query = broken.query.bind(broken);
  broken.query = (...args) =>
    statements.test(args[0]) ? Promise.reject(new Error('of the driver')) : query(...args);
  return () => void (broken.query = query);
}

const delay = (ms: number) => new Promise<void>((resolve) => void setTimeout(resolve, ms));

/** As another request: outside of the asynchronous context of this one. */
const outsideOfTurn = AsyncLocalStorage.bind(<T>(work: () => Promise<T>) => work());
