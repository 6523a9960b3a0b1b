import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { DataSource, EntityManager, QueryRunner } from 'typeorm';
import {
  claimRow,
  fencedFindOne,
  fencedUpdate,
  optimisticUpdate,
  withRowLock,
} from '../../lib/backends/typeorm/index.js';
import { LockConfigError } from '../../lib/core/errors.js';
import {
  type Store,
  betterSqlite3Store,
  libsqlStore,
  mariadbStore,
  postgresStore,
} from '../support/stores.js';
import { tempFolder } from '../support/temp-folder.js';
import { tablesOn } from './databases.js';
import { Task } from './task.js';

const HELPERS: [name: string, call: (manager: EntityManager) => Promise<unknown>][] = [
  [
    'fencedFindOne',
    async (manager) => {
      await fencedFindOne(manager, Task, { id: 1 }, 5n);
      await manager.update(Task, { id: 1 }, { progress: 1 });
    },
  ],
  ['fencedUpdate', (manager) => fencedUpdate(manager, Task, { id: 1 }, { progress: 1 }, 5n)],
  [
    'fencedUpdate by a condition',
    (manager) => fencedUpdate(manager, Task, { progress: 0 }, { progress: 1 }, 5n),
  ],
  ['claimRow', (manager) => claimRow(manager, Task, { from: { progress: 0 }, to: { progress: 1 } })],
  [
    'optimisticUpdate',
    (manager) => optimisticUpdate(manager, Task, { id: 1 }, (task) => void (task.progress = 1)),
  ],
  [
    'withRowLock',
    (manager) =>
      withRowLock(manager, Task, { id: 1 }, () => manager.update(Task, { id: 1 }, { progress: 1 })),
  ],
];

const folder = tempFolder();

const STARTS: [database: string, start: string, storeOf: () => Store, end: string][] = [
  ['better-sqlite3', 'BEGIN', () => betterSqlite3Store(join(folder, 'raw.db')), 'SELECT 1'],
  ['libsql', 'BEGIN', () => libsqlStore(join(folder, 'libsql.db')), 'SELECT 1'],
  ['postgres', 'BEGIN', postgresStore, 'ROLLBACK'],
  ['mariadb', 'START TRANSACTION', () => mariadbStore(), 'ROLLBACK'],
  ['mariadb', 'SET autocommit = 0', () => mariadbStore(), 'SET autocommit = 1'],
];

/** After a conflict a helper would repeat a part of a transaction that the server has rolled back, or commit a part of it. */
describe.each(STARTS)('a transaction that TypeORM did not begin, on %s by %s', (_, start, storeOf, end) => {
  let database: DataSource;
  let runner: QueryRunner;
  tablesOn(storeOf, [Task], (opened) => (database = opened));
  beforeEach(async () => {
    await database.manager.createQueryBuilder().delete().from(Task).execute();
    await database.manager.insert(Task, [{ id: 1 }, { id: 2, progress: 2 }]);
    runner = database.createQueryRunner();
    await runner.query(start);
  });
  afterEach(async () => {
    // Some have rolled back. SQLite then refuses.
    await runner.query('ROLLBACK').catch(() => undefined);
    await runner.query(end);
    await runner.release();
  });

  const progress = async () =>
    (await database.manager.find(Task, { order: { id: 'ASC' } })).map(({ progress }) => progress);

  it.each(HELPERS)('is refused by %s, and can be rolled back', async (_name, call) => {
    await runner.manager.update(Task, { id: 2 }, { progress: 3 });
    const attempt = call(runner.manager);
    await expect(attempt).rejects.toThrow(LockConfigError);
    await expect(attempt).rejects.toThrow('queryRunner.startTransaction()');
    await runner.query('ROLLBACK');
    expect(await progress()).toEqual([0, 2]);
  });

  it.each(HELPERS)('is refused by %s before its first statement', async (_name, call) => {
    await expect(call(runner.manager)).rejects.toThrow(LockConfigError);
  });

  it.each(HELPERS)('does not prevent %s after its end', async (_name, call) => {
    await runner.query('ROLLBACK');
    await runner.query(end);
    await call(runner.manager);
    expect(await progress()).toEqual([1, 2]);
  });
});
