import { setImmediate as nextTurn, setTimeout as sleep } from 'node:timers/promises';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { Test, type TestingModule } from '@nestjs/testing';
import {
  Column,
  type DataSource,
  Entity,
  type EntityManager,
  type EntitySubscriberInterface,
  PrimaryColumn,
} from 'typeorm';
import { memoryBackend } from '../../lib/backends/memory/index.js';
import { claimRow, withLockedTransaction, withRowLock } from '../../lib/backends/typeorm/index.js';
import { DistributedLockModule, LockConfigError, LockService } from '../../lib/index.js';
import { until } from '../support/until.js';
import { databases, tablesOn } from './databases.js';
import { transactionOnRunner } from './transaction-on-runner.js';

@Entity()
class Row {
  @PrimaryColumn('int')
  id!: number;

  @Column('int')
  count!: number;
}

const onOneConnection = databases.filter(([name]) => name === 'better-sqlite3' || name === 'libsql');

/** What an application does in its subscribers must not end, undo or block the transaction of another request. */
describe.each(onOneConnection)('subscribers on the only connection of %s', (_, storeOf) => {
  let database: DataSource;
  let app: TestingModule;
  const subscribers: EntitySubscriberInterface[] = [];
  tablesOn(storeOf, [Row], (opened) => (database = opened));
  beforeAll(async () => {
    const imports = [DistributedLockModule.forRoot({ backend: memoryBackend(), namespace: 'spec' })];
    app = await Test.createTestingModule({ imports }).compile();
    await app.init();
    await locked(() => undefined);
  });
  afterAll(() => app.close());
  afterEach(() => {
    for (const one of subscribers.splice(0))
      database.subscribers.splice(database.subscribers.indexOf(one), 1);
  });

  const locked = <T>(work: (manager: EntityManager) => T | Promise<T>, key = 'any') =>
    withLockedTransaction(database, key, { locks: app.get(LockService) }, work);

  it('a locked transaction inside of a plain one is refused, since it would wait for it', async () => {
    const nested = database.transaction(() => locked(() => undefined, 'nested'));
    await expect(nested).rejects.toThrow(LockConfigError);
    await expect(database.transaction(() => lockedRow())).rejects.toThrow(LockConfigError);
    expect(await locked(() => 'free')).toBe('free');
  });

  const lockedRow = () => withRowLock(database, Row, { id: 1 }, () => undefined);

  /** The subscriber is called once, at the next such event. */
  function once(
    event: string,
    react: (manager: EntityManager) => Promise<unknown>,
  ): { readonly wasCalled: boolean } {
    const state = { wasCalled: false };
    const subscriber = {
      async [event]({ manager }: { manager: EntityManager }) {
        if (state.wasCalled) return;
        state.wasCalled = true;
        await react(manager);
      },
    } as EntitySubscriberInterface;
    subscribers.push(subscriber);
    database.subscribers.push(subscriber);
    return state;
  }

  let lastId = 0;
  const newId = () => (lastId += 1);
  const insert = (manager: EntityManager, id: number) => manager.insert(Row, { id, count: 10 });
  const countOf = async (id: number) => (await database.manager.findOneBy(Row, { id }))?.count;
  const isOpen = () => database.createQueryRunner().isTransactionActive;

  /** A transaction of another request. It fails after ROLLBACK was asked for, or commits. */
  const transactionOfOther = (id: number, event: string) =>
    database
      .transaction(async (manager) => {
        await insert(manager, id);
        await sleep(10);
        if (event.endsWith('Rollback')) throw new Error('of the other request');
      })
      .catch(() => undefined);

  describe.each(['afterTransactionCommit', 'afterTransactionRollback'])('%s', (event) => {
    const waits: [string, () => Promise<unknown>][] = [
      ['not at all', () => Promise.resolve()],
      ['a microtask', () => Promise.resolve().then(() => undefined)],
      ['a turn of the event loop', () => nextTurn()],
      ['for I/O', () => sleep(20)],
    ];
    it.each(waits)(
      'may save while a locked transaction waits, after it has waited %s',
      async (_text, wait) => {
        const [id, savedId, lockedId] = [newId(), newId(), newId()];
        let saved: Promise<unknown> | undefined;
        once(event, async (manager) => {
          await wait();
          saved = manager.save(Row, { id: savedId, count: 1 });
          await saved;
        });
        const other = transactionOfOther(id, event);
        await until(isOpen);
        await locked((manager) => insert(manager, lockedId));
        await other;
        await saved;
        expect(await countOf(id)).toBe(event.endsWith('Commit') ? 10 : undefined);
        expect(await countOf(savedId)).toBe(1);
        expect(await countOf(lockedId)).toBe(10);
        expect(isOpen()).toBe(false);
      },
    );

    it('may save while a row is claimed', async () => {
      const [id, savedId, claimedId] = [newId(), newId(), newId()];
      await insert(database.manager, claimedId);
      let saved: Promise<unknown> | undefined;
      once(event, async (manager) => {
        await sleep(20);
        saved = manager.save(Row, { id: savedId, count: 1 });
        await saved.catch(() => undefined);
      });
      const other = transactionOfOther(id, event);
      await until(isOpen);
      once('beforeUpdate', () => sleep(40));
      const claimed = await claimRow(database, Row, { from: { id: claimedId, count: 10 }, to: { count: 9 } });
      await other;
      await saved;
      expect(claimed).toMatchObject({ count: 9 });
      expect(await countOf(claimedId)).toBe(9);
      expect(await countOf(savedId)).toBe(1);
      expect(isOpen()).toBe(false);
    });

    it('blocks no other request if it never returns', async () => {
      const [id, nextId, lockedId] = [newId(), newId(), newId()];
      let release = (): void => undefined;
      const held = new Promise<void>((resolve) => (release = resolve));
      const subscriber = once(event, () => held);
      const other = transactionOfOther(id, event);
      try {
        await until(() => subscriber.wasCalled);
        await database.manager.save(Row, { id: nextId, count: 1 });
        await locked((manager) => insert(manager, lockedId));
      } finally {
        release();
      }
      await other;
      expect(await countOf(nextId)).toBe(1);
      expect(await countOf(lockedId)).toBe(10);
    });

    it('undoes no other transaction if it fails late', async () => {
      const [id, nextId] = [newId(), newId()];
      let isOtherOpen = false;
      once(event, async () => {
        await until(() => isOtherOpen);
        throw new Error('of the subscriber');
      });
      const other = transactionOfOther(id, event);
      await until(() => subscribers.length > 0 && !isOpen());
      await locked(async (manager) => {
        await insert(manager, nextId);
        isOtherOpen = true;
        await other;
      });
      expect(await countOf(nextId)).toBe(10);
    });
  });

  it('of a locked transaction may wait after COMMIT for the save of another request', async () => {
    const [id, otherId] = [newId(), newId()];
    let save = (): void => undefined;
    const asked = new Promise<void>((resolve) => (save = resolve));
    const other = asked.then(() => database.manager.save(Row, { id: otherId, count: 1 }));
    once('afterTransactionCommit', async () => {
      save();
      await other;
    });
    await locked((manager) => insert(manager, id));
    expect(await countOf(id)).toBe(10);
    expect(await countOf(otherId)).toBe(1);
  });

  it('of a locked transaction that never return after COMMIT block only locked ones', async () => {
    const [id, nextId] = [newId(), newId()];
    let release = (): void => undefined;
    const held = new Promise<void>((resolve) => (release = resolve));
    const subscriber = once('afterTransactionCommit', () => held);
    const first = locked((manager) => insert(manager, id));
    try {
      await until(() => subscriber.wasCalled);
      await database.manager.save(Row, { id: nextId, count: 10 });
      await claimRow(database, Row, { from: { id: nextId, count: 10 }, to: { count: 9 } });
    } finally {
      release();
    }
    await first;
    expect(await countOf(nextId)).toBe(9);
  });

  it('of a locked transaction must not begin another locked one', async () => {
    let inner: Promise<unknown> | undefined;
    once('afterTransactionCommit', () => {
      inner = locked(() => undefined, 'inner');
      return inner.catch(() => undefined);
    });
    await locked((manager) => insert(manager, newId()));
    await expect(inner).rejects.toThrow(LockConfigError);
  });

  it('of a helper may begin a locked transaction without awaiting it', async () => {
    const [claimedId, lockedId, otherId] = [newId(), newId(), newId()];
    await insert(database.manager, claimedId);
    let mayFail = false;
    let begun: Promise<unknown> | undefined;
    once('afterUpdate', async () => {
      begun = locked(async (manager) => {
        await insert(manager, lockedId);
        await until(() => mayFail);
        throw new Error('of the locked one');
      });
      begun.catch(() => undefined);
      await until(isOpen);
    });
    const claimed = claimRow(database, Row, { from: { id: claimedId, count: 10 }, to: { count: 9 } });
    await until(isOpen);
    await sleep(20);
    const other = transactionOnRunner(database, (manager) => insert(manager, otherId));
    await nextTurn();
    mayFail = true;
    await expect(begun).rejects.toThrow('of the locked one');
    await Promise.all([claimed, other]);
    expect(await countOf(otherId)).toBe(10);
    expect(await countOf(lockedId)).toBeUndefined();
  });

  it('may begin a transaction within a helper that ends before it could begin', async () => {
    const [slowId, claimedId, savedId, lockedId] = [newId(), newId(), newId(), newId()];
    for (const id of [slowId, claimedId]) await insert(database.manager, id);
    const claim = (on: DataSource | EntityManager, id: number) =>
      claimRow(on, Row, { from: { id, count: 10 }, to: { count: 9 } });
    // A helper on a query runner of the application occupies the runner, on which transactions begin.
    let endSlow = (): void => undefined;
    const held = new Promise<void>((resolve) => (endSlow = resolve));
    const slow = once('beforeUpdate', () => held);
    const first = claim(database.createQueryRunner().manager, slowId);
    await until(() => slow.wasCalled);
    let saved: Promise<unknown> | undefined;
    once('afterUpdate', () => {
      saved = database.transaction((manager) => insert(manager, savedId));
      return Promise.resolve();
    });
    await claim(database, claimedId);
    const next = locked((manager) => insert(manager, lockedId));
    await nextTurn();
    endSlow();
    await Promise.all([first, saved, next]);
    expect(await countOf(savedId)).toBe(10);
    expect(await countOf(lockedId)).toBe(10);
    expect(isOpen()).toBe(false);
  });

  it('or a BEGIN that fails leave the connection to the next transaction', async () => {
    const id = newId();
    const runner = database.createQueryRunner();
    await runner.query('BEGIN');
    await expect(runner.startTransaction()).rejects.toThrow('transaction');
    expect(runner.isTransactionActive).toBe(false);
    await runner.query('ROLLBACK');
    await locked((manager) => insert(manager, id));
    expect(await countOf(id)).toBe(10);
  });

  it('or a BEGIN that has failed before the first helper leave it, too', async () => {
    const id = newId();
    const runner = database.createQueryRunner();
    // The state in which TypeORM leaves it.
    Object.assign(runner, { isTransactionActive: true });
    await runner.rollbackTransaction();
    await locked((manager) => insert(manager, id));
    expect(await countOf(id)).toBe(10);
  });

  it('or a transaction that SQLite has rolled back before the first helper leave it, too', async () => {
    const id = newId();
    // The state in which TypeORM leaves it.
    Object.assign(database.createQueryRunner(), { isTransactionActive: true, transactionDepth: 1 });
    await locked((manager) => insert(manager, id));
    expect(await countOf(id)).toBe(10);
  });

  it('or another asynchronous context use the manager of a locked transaction in helpers', async () => {
    const id = newId();
    await insert(database.manager, id);
    let open: EntityManager | undefined;
    let claimed: Promise<unknown> | undefined;
    const claim = (manager: EntityManager) =>
      claimRow(manager, Row, { from: { id, count: 10 }, to: { count: 9 } });
    // A worker that was started before the transaction.
    const worker = until(() => open !== undefined).then(() => (claimed = claim(open!)));
    await locked(async (manager) => {
      open = manager;
      await worker;
      await claimed;
    });
    expect(await countOf(id)).toBe(9);
  });

  it.each([0, 1])(
    'or a query runner that is rolled back after its commit end no transaction that began %i ms later',
    async (ms) => {
      const [firstId, secondId, lockedId] = [newId(), newId(), newId()];
      let commitFirst = (): void => undefined;
      const held = new Promise<void>((resolve) => (commitFirst = resolve));
      const byHand = database.createQueryRunner();
      async function begin() {
        await byHand.startTransaction();
        await insert(byHand.manager, firstId);
        await held;
        await byHand.commitTransaction();
      }
      const first = begin();
      await until(isOpen);
      await sleep(20);
      async function second() {
        await byHand.startTransaction();
        await insert(byHand.manager, secondId);
        await sleep(5);
        await byHand.commitTransaction();
        // On the only connection, this is the first transaction.
        if (byHand.isTransactionActive) await byHand.rollbackTransaction();
      }
      // It begins in the turn in which the first one commits, so that the COMMIT has to wait for its savepoint.
      const others = Promise.allSettled([first, second()]);
      commitFirst();
      await sleep(ms);
      const next = locked(async (manager) => {
        await insert(manager, lockedId);
        await sleep(20);
        throw new Error('of the locked one');
      });
      await expect(next).rejects.toThrow('of the locked one');
      await others;
      expect(await countOf(lockedId)).toBeUndefined();
      expect(isOpen()).toBe(false);
    },
  );

  const add = (subscriber: EntitySubscriberInterface) => {
    subscribers.push(subscriber);
    database.subscribers.push(subscriber);
  };

  it.each<[string, () => Promise<unknown>]>([
    ['a transaction', () => database.transaction(() => Promise.resolve())],
    ['a row lock', () => lockedRow()],
  ])('that fail once after the BEGIN of %s leave no transaction open', async (_begin, begin) => {
    let hasFailed = false;
    add({
      afterQuery({ query }) {
        if (hasFailed || !query.startsWith('BEGIN')) return;
        hasFailed = true;
        return Promise.reject(new Error('of the subscriber'));
      },
    });
    await expect(begin()).rejects.toThrow('of the subscriber');
    await expectFree();
  });

  it('that fail before ROLLBACK, too, leave no transaction open', async () => {
    const id = newId();
    await insert(database.manager, id);
    let fails = false;
    add({ beforeQuery: () => (fails ? Promise.reject(new Error('of the subscriber')) : undefined) });
    const failing = withRowLock(database, Row, { id }, async (_row, manager) => {
      fails = true;
      await manager.update(Row, { id }, { count: 1 });
    });
    await expect(failing).rejects.toThrow('of the subscriber');
    fails = false;
    await expectFree();
    expect(await countOf(id)).toBe(10);
  });

  /** Fails if a transaction is open: `BEGIN` is refused within another one. */
  async function expectFree() {
    const id = newId();
    await database.query('BEGIN');
    await database.query('ROLLBACK');
    await database.transaction((manager) => insert(manager, id));
    expect(await countOf(id)).toBe(10);
  }
});
