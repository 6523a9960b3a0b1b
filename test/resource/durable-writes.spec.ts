import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Test, type TestingModule } from '@nestjs/testing';
import type { DataSource, DataSourceOptions, EntityManager } from 'typeorm';
import {
  claimRow,
  fencedFindOne,
  fencedUpdate,
  optimisticUpdate,
  withLockedTransaction,
  withRowLock,
} from '../../lib/backends/typeorm/index.js';
import { LockConfigError, LockService } from '../../lib/index.js';
import { LockTestingModule } from '../../lib/testing/index.js';
import { type Store, mariadbStore, postgresStore } from '../support/stores.js';
import { inSession, tablesOn } from './databases.js';
import { Task } from './task.js';

type Write = (database: DataSource | EntityManager, id: number) => Promise<unknown>;

const WRITES: [name: string, write: Write][] = [
  ['fencedFindOne', (database, id) => fencedFindOne(database, Task, { id }, 5n)],
  ['fencedUpdate', (database, id) => fencedUpdate(database, Task, { id }, { progress: 1 }, 5n)],
  [
    'claimRow',
    (database, id) => claimRow(database, Task, { from: { id, progress: 0 }, to: { progress: 1 } }),
  ],
  [
    'optimisticUpdate',
    (database, id) => optimisticUpdate(database, Task, { id }, (task) => void (task.progress = 1)),
  ],
];

describe('if PostgreSQL does not wait for the disk by default', () => {
  let database: DataSource;
  tablesOn(postgresStore, [Task], (opened) => (database = opened));

  const settingAfter = (write: Write, id: number, setting: string) =>
    database.transaction(async (manager) => {
      await manager.insert(Task, { id });
      await manager.query(`SET LOCAL synchronous_commit = '${setting}'`);
      await write(manager, id);
      const [shown] = await manager.query<[{ setting: string }]>(
        `SELECT current_setting('synchronous_commit') AS setting`,
      );
      return shown.setting;
    });

  it.each(WRITES)('the transaction of %s does, and never waits for less than it did', async (name, write) => {
    const id = 10 * WRITES.findIndex(([other]) => other === name);
    expect(await settingAfter(write, id, 'off')).toBe('on');
    expect(await settingAfter(write, id + 1, 'local')).toBe('on');
    expect(await settingAfter(write, id + 2, 'remote_apply')).toBe('remote_apply');
  });
});

describe('if sessions of MariaDB begin with autocommit off', () => {
  let database: DataSource;
  let other: DataSource;
  tablesOn(mariadbStore, [Task], (opened) => (database = opened), { poolSize: 1 });
  tablesOn(mariadbStore, [Task], (opened) => (other = opened), {
    driver: inSession('SET SESSION autocommit = 0'),
    poolSize: 1,
  });

  it.each(WRITES)('what %s has written is committed', async (name, write) => {
    const id = WRITES.findIndex(([other]) => other === name) + 1;
    const own = other.getMetadata(Task).tableName;
    await other.transaction((manager) => manager.insert(Task, { id }));
    const rows = () =>
      database.query<object[]>(`SELECT progress, version, fencingToken FROM ${own} WHERE id = ${id}`);
    const before = await rows();
    await write(other, id);
    expect(await rows()).not.toEqual(before);
    expect(await other.query('SELECT @@autocommit AS isOn')).toMatchObject([{ isOn: '0' }]);
    await other.query('COMMIT');
  });
});

const CONDITIONAL: [name: string, write: Write][] = [
  ...WRITES,
  [
    'fencedUpdate by a condition',
    (database) => fencedUpdate(database, Task, { progress: 0 }, { progress: 1 }, 5n),
  ],
];

const autocommit = (value: 0 | 1) => ({ driver: inSession(`SET SESSION autocommit = ${value}`) });
const POOLS: [name: string, storeOf: () => Store, more: Partial<DataSourceOptions>][] = [
  ['postgres', postgresStore, {}],
  ['mariadb', () => mariadbStore(), autocommit(1)],
  ['mariadb with autocommit off', () => mariadbStore(), autocommit(0)],
];

let app: TestingModule;
beforeAll(async () => {
  app = await Test.createTestingModule({ imports: [LockTestingModule.forRoot()] }).compile();
  await app.init();
});
afterAll(() => app.close());

const progress = (manager: EntityManager, id: number) => manager.update(Task, { id }, { progress: 1 });

const TRANSACTIONS: [name: string, write: (database: DataSource, id: number) => Promise<unknown>][] = [
  ...CONDITIONAL,
  [
    'withRowLock',
    (database, id) => withRowLock(database, Task, { id }, (_, manager) => progress(manager, id)),
  ],
  [
    'withLockedTransaction',
    (database, id) =>
      withLockedTransaction(database, `task:${id}`, { locks: app.get(LockService) }, (manager) =>
        progress(manager, id),
      ),
  ],
];

describe.each(POOLS)(
  'a connection that comes back to the pool with an open transaction, on %s',
  (_, storeOf, more) => {
    let database: DataSource;
    let pool: DataSource;
    tablesOn(storeOf, [Task], (opened) => (pool = opened), Object.assign({ poolSize: 1 }, more));
    tablesOn(storeOf, [Task], (opened) => (database = opened));

    it.each(TRANSACTIONS)('is neither written to nor committed by %s', async (name, write) => {
      const id = TRANSACTIONS.findIndex(([other]) => other === name) + 1;
      const table = pool.getMetadata(Task).tableName;
      const ids = () =>
        database.query<object[]>(`SELECT id, progress FROM ${table} WHERE id IN (${id}, ${id + 100})`);
      await pool.transaction((manager) => manager.insert(Task, { id }));
      await pool.query('START TRANSACTION');
      await pool.query(`INSERT INTO ${table} (id, version) VALUES (${id + 100}, 1)`);
      const attempt = write(pool, id);
      await expect(attempt).rejects.toThrow(LockConfigError);
      await expect(attempt).rejects.toThrow('without an open transaction');
      expect(await ids()).toEqual([{ id, progress: 0 }]);
      await pool.query('ROLLBACK');
      expect(await ids()).toEqual([{ id, progress: 0 }]);
      await write(pool, id);
    });
  },
);

describe('a driver of PostgreSQL that does not report whether a transaction is open', () => {
  let database: DataSource;
  tablesOn(postgresStore, [Task], (opened) => (database = opened), { poolSize: 1 });

  it.each(CONDITIONAL)('does not prevent %s', async (name, write) => {
    const id = CONDITIONAL.findIndex(([other]) => other === name) + 1;
    await database.transaction((manager) => manager.insert(Task, { id }));
    const runner = database.createQueryRunner();
    // As `pg` 8.23 does with a pg-native before 3.8.
    const client = (await runner.connect()) as { getTransactionStatus: () => string | null };
    client.getTransactionStatus = () => {
      throw new TypeError('this.native.getTransactionStatus is not a function');
    };
    await runner.release();
    await write(database, id);
  });
});
