import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Test, type TestingModule } from '@nestjs/testing';
import { DataSource, type EntityManager } from 'typeorm';
import { memoryBackend } from '../../lib/backends/memory/index.js';
import {
  fencedFindOne,
  fencedUpdate,
  withLockedTransaction,
  withRowLock,
} from '../../lib/backends/typeorm/index.js';
import { type Lock, DistributedLockModule, LockConfigError, LockService } from '../../lib/index.js';
import { sqlServers } from '../support/stores.js';
import { tablesOn } from './databases.js';
import { Task } from './task.js';

const FENCE = { key: 'spec', fencingToken: 7n };

/** Without the check, each of these calls would wait for a row of its own transaction, without end. */
describe.each(sqlServers)('a fenced call in a transaction on %s', (_, storeOf) => {
  let database: DataSource;
  let app: TestingModule;
  tablesOn(storeOf, [Task], (opened) => (database = opened));
  beforeAll(async () => {
    const imports = [DistributedLockModule.forRoot({ backend: memoryBackend(), namespace: 'spec' })];
    app = await Test.createTestingModule({ imports }).compile();
    await app.init();
    await database.manager.insert(Task, [{ id: 1 }, { id: 2 }]);
  });
  afterAll(() => app.close());

  const locked = <T>(work: (manager: EntityManager, lock: Lock) => Promise<T>, name = 'task') =>
    withLockedTransaction(database, `${name}:${randomUUID()}`, { locks: app.get(LockService) }, work);

  it.each<[string, (lock: Lock) => Promise<unknown>]>([
    ['fencedUpdate', (lock) => fencedUpdate(database, Task, { id: 1 }, { progress: 1 }, lock)],
    ['fencedFindOne', (lock) => fencedFindOne(database.getRepository(Task), Task, { id: 1 }, lock)],
  ])('is refused with a manager outside of it: %s', async (_, call) => {
    const work = locked(async (manager, lock) => {
      await fencedFindOne(manager, Task, { id: 1 }, lock);
      await call(lock);
    });
    await expect(work).rejects.toThrow(LockConfigError);
    await expect(work).rejects.toThrow('got one outside of the transaction');
  });

  it('is refused in another transaction, also of this package', async () => {
    const call = (manager: EntityManager, lock: Lock) => fencedFindOne(manager, Task, { id: 1 }, lock);
    const nested = locked(async (manager, lock) => {
      await call(manager, lock);
      await locked(call, 'subtask');
    });
    await expect(nested).rejects.toThrow('got one outside of the transaction');
    const plain = locked((_, lock) => database.transaction((manager) => call(manager, lock)));
    await expect(plain).rejects.toThrow('got one outside of the transaction');
  });

  it('is refused under a row lock too', async () => {
    const work = withRowLock(database, Task, { id: 1 }, () =>
      fencedUpdate(database, Task, { id: 1 }, { progress: 1 }, FENCE),
    );
    await expect(work).rejects.toThrow('got one outside of the transaction');
  });

  it('works with the manager of the transaction, of a nested one, and of another data source', async () => {
    const other = await new DataSource({ ...database.options, synchronize: false }).initialize();
    await locked(async (manager, lock) => {
      const set = (inner: EntityManager, id: number) =>
        fencedUpdate(inner, Task, { id }, { progress: id }, lock);
      expect(await set(manager, 1)).toBe(true);
      expect(await manager.transaction((inner) => set(inner, 1))).toBe(true);
      expect(await set(other.manager, 2)).toBe(true);
    });
    await other.destroy();
  });

  it('works after the transaction, in what its work has started', async () => {
    let later = Promise.resolve(false);
    let commit = (): void => undefined;
    const committed = new Promise<void>((resolve) => (commit = resolve));
    await locked(async () => {
      later = committed.then(() =>
        fencedUpdate(database, Task, { id: 1 }, {}, { ...FENCE, fencingToken: 2n ** 62n }),
      );
    });
    commit();
    expect(await later).toBe(true);
  });
});
