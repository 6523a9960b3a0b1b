import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { Test, type TestingModule } from '@nestjs/testing';
import type { DataSource, EntitySubscriberInterface } from 'typeorm';
import { memoryBackend } from '../../lib/backends/memory/index.js';
import {
  claimRow,
  fencedUpdate,
  optimisticUpdate,
  withLockedTransaction,
  withRowLock,
} from '../../lib/backends/typeorm/index.js';
import { DistributedLockModule, LockService } from '../../lib/index.js';
import { sqlServers } from '../support/stores.js';
import { tablesOn } from './databases.js';
import { settingsOf } from './sessions.js';
import { Task } from './task.js';

/** What a server replies to the victim of a deadlock. */
const DEADLOCK: Readonly<Record<string, string>> = {
  postgres: `DO $$ BEGIN RAISE EXCEPTION 'deadlock of the subscriber' USING ERRCODE = '40P01'; END $$`,
  mariadb: `SIGNAL SQLSTATE '40001' SET MYSQL_ERRNO = 1213, MESSAGE_TEXT = 'deadlock of the subscriber'`,
};

type Progress = readonly [first: number, second: number];

/** A subscriber does not know what has been written already, and its error may look like one of the write itself. */
describe.each(sqlServers)('a deadlock of a subscriber on %s', (name, storeOf) => {
  let database: DataSource;
  let app: TestingModule;
  const subscriber: EntitySubscriberInterface = {};
  tablesOn(storeOf, [Task], (opened) => {
    database = opened;
    database.subscribers.push(subscriber);
  });
  beforeAll(async () => {
    const imports = [DistributedLockModule.forRoot({ backend: memoryBackend(), namespace: 'spec' })];
    app = await Test.createTestingModule({ imports }).compile();
    await app.init();
  });
  afterAll(() => app.close());

  const tasks = () => database.manager.find(Task, { order: { id: 'ASC' } });
  const failOnceAt = (event: 'beforeUpdate' | 'afterUpdate' | 'afterTransactionCommit') => {
    subscriber[event] = async () => {
      subscriber[event] = undefined;
      await database.query(DEADLOCK[name]!);
    };
  };

  /** TypeORM throws the error of such a subscriber as if it were that of the statement, which has been executed. */
  const failOnceAfterQuery = (statement: 'UPDATE' | 'COMMIT' | 'SET', fail: () => Promise<unknown>) => {
    subscriber.afterQuery = ({ query }) => {
      if (!query.startsWith(statement)) return;
      delete subscriber.afterQuery;
      return fail();
    };
  };
  const deadlock = () => database.query(DEADLOCK[name]!);

  beforeEach(async () => {
    await database.manager.clear(Task);
    await database.manager.insert(Task, [{ id: 1 }, { id: 2 }]);
  });

  it('after an optimistic update does not repeat the update', async () => {
    failOnceAt('afterUpdate');
    const change = (task: Task) => void (task.progress += 1);
    const update = optimisticUpdate(database, Task, { id: 1 }, change);
    await expect(update).rejects.toThrow('deadlock of the subscriber');
    expect((await tasks()).map(({ progress }) => progress)).toEqual([1, 0]);
  });

  it('before an optimistic update leaves the row as it was', async () => {
    failOnceAt('beforeUpdate');
    const change = (task: Task) => void (task.progress += 1);
    const update = optimisticUpdate(database, Task, { id: 1 }, change);
    await expect(update).rejects.toThrow('deadlock of the subscriber');
    expect((await tasks()).map(({ progress }) => progress)).toEqual([0, 0]);
  });

  it('after a claim does not claim another row', async () => {
    failOnceAt('afterUpdate');
    const claim = { from: { state: 'WAITING' }, to: { state: 'RUNNING' } };
    await expect(claimRow(database, Task, claim)).rejects.toThrow('deadlock of the subscriber');
    expect((await tasks()).map(({ state }) => state).sort()).toEqual(['RUNNING', 'WAITING']);
  });

  it('after the limit of a wait was set leaves the session as it was', async () => {
    const runner = database.createQueryRunner();
    try {
      const before = await settingsOf(runner.manager);
      failOnceAfterQuery('SET', () => Promise.reject(new Error('of the subscriber')));
      await runner.startTransaction();
      const locked = withRowLock(runner.manager, Task, { id: 1 }, () => 'done', { waitMs: 7_000 });
      await expect(locked).rejects.toThrow('of the subscriber');
      await runner.rollbackTransaction();
      expect(await settingsOf(runner.manager)).toEqual(before);
    } finally {
      await runner.release();
    }
  });

  const expression = { progress: () => 'progress + 1' };

  it('after a fenced write of one row, which is committed, does not repeat it', async () => {
    failOnceAt('afterUpdate');
    const write = fencedUpdate(database, Task, { id: 1 }, expression, 1n);
    await expect(write).rejects.toThrow('deadlock of the subscriber');
    expect((await tasks()).map(({ progress }) => progress)).toEqual([1, 0]);
  });

  it.each([
    ['before a fenced write of one row', 'beforeUpdate', { id: 1 }, [1, 0]],
    ['before a fenced write of several rows', 'beforeUpdate', { state: 'WAITING' }, [1, 1]],
    ['in the transaction of a fenced write', 'afterUpdate', { state: 'WAITING' }, [1, 1]],
  ] as const)('%s is repeated, as nothing is written yet', async (_, event, where, progress) => {
    failOnceAt(event);
    expect(await fencedUpdate(database, Task, where, expression, 1n)).toBe(true);
    expect((await tasks()).map((task) => task.progress)).toEqual(progress);
  });

  it('after COMMIT does not repeat a fenced write of several rows', async () => {
    failOnceAt('afterTransactionCommit');
    const write = fencedUpdate(database, Task, { state: 'WAITING' }, expression, 1n);
    await expect(write).rejects.toThrow('deadlock of the subscriber');
    expect((await tasks()).map(({ progress }) => progress)).toEqual([1, 1]);
  });

  it.each([1, 3])(
    'after COMMIT does not repeat the work under a row lock (attempts: %i)',
    async (attempts) => {
      failOnceAt('afterTransactionCommit');
      const locked = withRowLock(
        database,
        Task,
        { id: 1 },
        (_, manager) => manager.increment(Task, { id: 1 }, 'progress', 1),
        { attempts },
      );
      await expect(locked).rejects.toThrow('deadlock of the subscriber');
      expect((await tasks()).map(({ progress }) => progress)).toEqual([1, 0]);
    },
  );

  it('after COMMIT says nothing about the next transaction of the same query runner', async () => {
    const runner = database.createQueryRunner();
    const locked = (work: () => unknown) =>
      withRowLock(runner.manager, Task, { id: 1 }, work, { attempts: 2 });
    try {
      failOnceAt('afterTransactionCommit');
      await expect(locked(() => undefined)).rejects.toThrow('deadlock of the subscriber');
      let calls = 0;
      const failOnce = async () => {
        calls += 1;
        if (calls === 1) await runner.query(DEADLOCK[name]!);
      };
      await locked(failOnce);
      expect(calls).toBe(2);
    } finally {
      await runner.release();
    }
  });

  it('after COMMIT does not repeat a locked transaction', async () => {
    failOnceAt('afterTransactionCommit');
    const locked = withLockedTransaction(database, 'task', { locks: app.get(LockService) }, (manager) =>
      manager.increment(Task, { id: 1 }, 'progress', 1),
    );
    await expect(locked).rejects.toThrow('deadlock of the subscriber');
    expect((await tasks()).map(({ progress }) => progress)).toEqual([1, 0]);
  });

  it.each<[string, Progress, () => Promise<unknown>]>([
    [
      'an optimistic update',
      [1, 0],
      () => optimisticUpdate(database, Task, { id: 1 }, (task) => void (task.progress += 1)),
    ],
    ['a fenced write of one row', [1, 0], () => fencedUpdate(database, Task, { id: 1 }, expression, 1n)],
    [
      'a claim',
      [1, 0],
      () =>
        claimRow(database, Task, {
          from: { state: 'WAITING' },
          to: { state: 'RUNNING', progress: 1 },
          order: { id: 'ASC' },
        }),
    ],
  ])('after the statement of %s does not repeat it', async (_, progress, write) => {
    failOnceAfterQuery('UPDATE', deadlock);
    await expect(write()).rejects.toThrow('deadlock of the subscriber');
    expect((await tasks()).map((task) => task.progress)).toEqual(progress);
  });

  it('after the statement of a fenced write of one row does not repeat it, although another subscriber throws, too', async () => {
    failOnceAfterQuery('UPDATE', deadlock);
    let hasThrown = false;
    const other: EntitySubscriberInterface = {
      afterQuery({ query }) {
        if (hasThrown || !query.startsWith('UPDATE')) return;
        hasThrown = true;
        throw new Error('of the other subscriber');
      },
    };
    database.subscribers.push(other);
    try {
      await expect(fencedUpdate(database, Task, { id: 1 }, expression, 1n)).rejects.toThrow('subscriber');
    } finally {
      database.subscribers.pop();
    }
    expect((await tasks()).map((task) => task.progress)).toEqual([1, 0]);
  });

  it('after the statement in the transaction of a fenced write repeats the transaction', async () => {
    failOnceAfterQuery('UPDATE', deadlock);
    expect(await fencedUpdate(database, Task, { state: 'WAITING' }, expression, 1n)).toBe(true);
    expect((await tasks()).map(({ progress }) => progress)).toEqual([1, 1]);
  });

  it.each<[string, Progress, () => Promise<unknown>]>([
    [
      'a fenced write of several rows',
      [1, 1],
      () => fencedUpdate(database, Task, { state: 'WAITING' }, expression, 1n),
    ],
    [
      'the work under a row lock',
      [1, 0],
      () =>
        withRowLock(
          database,
          Task,
          { id: 1 },
          (_, manager) => manager.increment(Task, { id: 1 }, 'progress', 1),
          { attempts: 3 },
        ),
    ],
  ])('after the statement COMMIT does not repeat %s', async (_, progress, write) => {
    failOnceAfterQuery('COMMIT', deadlock);
    await expect(write()).rejects.toThrow('deadlock of the subscriber');
    expect((await tasks()).map((task) => task.progress)).toEqual(progress);
  });

  const subscriberError = new Error('the subscriber');
  it.each<[string, () => Promise<unknown>]>([
    [
      'at once',
      () => {
        throw subscriberError;
      },
    ],
    ['later', () => Promise.reject(subscriberError)],
  ])('after the statement COMMIT leaves no doubt that it is committed: %s', async (_, failure) => {
    failOnceAfterQuery('COMMIT', failure);
    const locked = withLockedTransaction(database, 'task', { locks: app.get(LockService) }, (manager) =>
      manager.increment(Task, { id: 1 }, 'progress', 1),
    );
    await expect(locked).rejects.toThrow(/^(Error: )?the subscriber$/);
    expect((await tasks()).map(({ progress }) => progress)).toEqual([1, 0]);
  });
});
