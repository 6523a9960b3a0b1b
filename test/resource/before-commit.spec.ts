import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { Test, type TestingModule } from '@nestjs/testing';
import { DataSource, type EntityManager, type EntitySubscriberInterface, type QueryRunner } from 'typeorm';
import { memoryBackend } from '../../lib/backends/memory/index.js';
import { fencedUpdate, withLockedTransaction, withRowLock } from '../../lib/backends/typeorm/index.js';
import { DistributedLockModule, LockConfigError, LockLostError, LockService } from '../../lib/index.js';
import { sqlServers } from '../support/stores.js';
import { databases, tablesOn } from './databases.js';
import { Task } from './task.js';

/** What a subscriber does as the last thing before COMMIT. */
function fixture(storeOf: Parameters<typeof tablesOn>[0]) {
  const subscriber: EntitySubscriberInterface = {};
  const opened = {} as { database: DataSource; app: TestingModule };
  tablesOn(storeOf, [Task], (database) => {
    opened.database = database;
    database.subscribers.push(subscriber);
  });
  beforeAll(async () => {
    const imports = [DistributedLockModule.forRoot({ backend: memoryBackend(), namespace: 'spec' })];
    const providers = [{ provide: DataSource, useValue: opened.database }];
    opened.app = await Test.createTestingModule({ imports, providers }).compile();
    await opened.app.init();
  });
  beforeEach(async () => {
    await opened.database.manager.clear(Task);
    await opened.database.manager.insert(Task, { id: 1 });
  });
  afterEach(() => {
    delete subscriber.beforeTransactionCommit;
  });
  afterAll(() => opened.app.close());
  const beforeCommit = (run: (runner: QueryRunner) => Promise<unknown>) => {
    subscriber.beforeTransactionCommit = ({ queryRunner }) => run(queryRunner);
  };
  const progress = async () => (await opened.database.manager.findOneByOrFail(Task, { id: 1 })).progress;
  return { opened, beforeCommit, progress };
}

const write = (manager: EntityManager) => manager.update(Task, { id: 1 }, { progress: 5 });

describe.each(databases)('a subscriber before COMMIT on %s', (_, storeOf) => {
  const { opened, beforeCommit, progress } = fixture(storeOf);

  it('during which the lock is lost: nothing is committed', async () => {
    const locks = opened.app.get(LockService);
    const locked = withLockedTransaction(opened.database, 'task', async (manager, lock) => {
      await write(manager);
      beforeCommit(async () => {
        await locks.forceRelease('task', lock);
        await expect(lock.extend(10_000)).rejects.toThrow(LockLostError);
      });
    });
    await expect(locked).rejects.toThrow(LockLostError);
    expect(await progress()).toBe(0);
  });
});

describe.each(sqlServers)('a subscriber that catches an error before COMMIT on %s', (name, storeOf) => {
  const { opened, beforeCommit, progress } = fixture(storeOf);
  // What a deadlock does on MySQL and MariaDB, without the choice of its victim.
  const failure = name === 'postgres' ? 'SELECT no_such_column' : 'ROLLBACK';
  beforeEach(() => beforeCommit((runner) => runner.query(failure).catch(() => undefined)));

  it.each<[string, (database: DataSource) => Promise<unknown>]>([
    ['a locked transaction', (database) => withLockedTransaction(database, 'task', write)],
    ['a row lock', (database) => withRowLock(database, Task, { id: 1 }, (__, manager) => write(manager))],
    [
      'a fenced write by a condition',
      (database) => fencedUpdate(database, Task, { state: 'WAITING' }, { progress: 5 }, 9n),
    ],
  ])('makes %s fail', async (__, call) => {
    await expect(call(opened.database)).rejects.toThrow(LockConfigError);
    expect(await progress()).toBe(0);
  });
});
