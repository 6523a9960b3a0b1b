import { describe, expect, it } from 'vitest';
import type { DataSource } from 'typeorm';
import { claimRow, fencedFindOne, fencedUpdate, optimisticUpdate } from '../../lib/backends/typeorm/index.js';
import { LockLostError } from '../../lib/core/errors.js';
import { CONFLICT, databases, strictDatabases, tablesOn } from './databases.js';
import { Task } from './task.js';

const increment = (task: Task) => {
  task.progress += 1;
};

describe.each(strictDatabases)('on %s', (_, storeOf, more) => {
  let database: DataSource;
  tablesOn(storeOf, [Task], (opened) => (database = opened), more);

  it('many workers that change one row outside of transactions all succeed', async () => {
    await database.manager.insert(Task, { id: 1 });
    const updates = Array.from({ length: 60 }, () =>
      optimisticUpdate(database, Task, { id: 1 }, increment, { attempts: 1_000 }),
    );
    await Promise.all(updates);
    expect(await database.manager.findOneBy(Task, { id: 1 })).toMatchObject({ progress: 60 });
  }, 120_000);

  it('many workers that claim get a row each, or none', async () => {
    const ids = Array.from({ length: 15 }, (_, index) => 100 + index);
    await database.manager.insert(
      Task,
      ids.map((id) => ({ id, state: 'NEW' })),
    );
    const claims = Array.from({ length: 60 }, () =>
      claimRow(database, Task, { from: { state: 'NEW' }, to: { state: 'RUNNING' }, order: { id: 'ASC' } }),
    );
    const claimed = (await Promise.all(claims)).flatMap((task) => (task ? [task.id] : []));
    expect(claimed.sort((one, other) => one - other)).toEqual(ids);
  });

  it('fenced reads and writes at once succeed, or are refused by a newer token', async () => {
    await database.manager.insert(Task, { id: 200 });
    const holders = Array.from({ length: 20 }, async (_, index) => {
      const token = BigInt(index + 1);
      const task = await fencedFindOne(database, Task, { id: 200 }, token);
      await fencedUpdate(database, Task, { id: 200 }, { progress: task!.progress + 1 }, token);
    });
    const outcomes = await Promise.allSettled(holders);
    for (const outcome of outcomes) {
      if (outcome.status === 'rejected') expect(outcome.reason).toBeInstanceOf(LockLostError);
    }
    const accepted = outcomes.filter(({ status }) => status === 'fulfilled').length;
    expect(await database.manager.findOneBy(Task, { id: 200 })).toMatchObject({ progress: accepted });
  });

  it('in a transaction that has read before, the error of the database passes', async () => {
    await database.manager.insert(Task, { id: 300 });
    const changes = [
      (manager: DataSource['manager']) => optimisticUpdate(manager, Task, { id: 300 }, increment),
      (manager: DataSource['manager']) => fencedFindOne(manager, Task, { id: 300 }, 9n),
      (manager: DataSource['manager']) => fencedUpdate(manager, Task, { id: 300 }, { state: 'DONE' }, 9n),
    ];
    for (const [index, change] of changes.entries()) {
      const work = database.transaction('REPEATABLE READ', async (manager) => {
        await manager.findOneBy(Task, { id: 300 });
        await database.manager.update(Task, { id: 300 }, { progress: 10 + index });
        await change(manager);
      });
      await expect(work).rejects.toThrow(CONFLICT);
    }
    expect(await database.manager.findOneBy(Task, { id: 300 })).toMatchObject({ progress: 12 });
  });
});

describe.each(databases)('with a cache that is on for every read, on %s', (_, storeOf) => {
  let database: DataSource;
  const cache = { alwaysEnabled: true, duration: 600_000, type: 'database' as const };
  tablesOn(storeOf, [Task], (opened) => (database = opened), { cache });

  it('rows are read from the database', async () => {
    await database.manager.insert(Task, { id: 1 });
    for (const progress of [1, 2, 3]) {
      const task = await optimisticUpdate(database, Task, { id: 1 }, increment);
      expect(task).toMatchObject({ progress });
    }
    const claim = (from: string, to: string) =>
      claimRow(database, Task, { from: { state: from }, to: { state: to } });
    expect(await claim('WAITING', 'RUNNING')).toMatchObject({ state: 'RUNNING' });
    expect(await claim('WAITING', 'RUNNING')).toBeNull();
    expect(await claim('RUNNING', 'WAITING')).toMatchObject({ state: 'WAITING' });
    expect(await claim('WAITING', 'DONE')).toMatchObject({ state: 'DONE' });
    for (const token of [5n, 6n, 7n]) {
      expect(await fencedFindOne(database, Task, { id: 1 }, token)).toMatchObject({
        progress: Number(token) - 2,
      });
      await fencedUpdate(database, Task, { id: 1 }, { progress: Number(token) - 1 }, token);
      const late = fencedUpdate(database, Task, { id: 1 }, { progress: 0 }, token - 1n);
      await expect(late).rejects.toThrow(`${token} has written`);
    }
  });
});
