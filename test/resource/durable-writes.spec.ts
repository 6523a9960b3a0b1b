import { describe, expect, it } from '@jest/globals';
import { Column, type DataSource, Entity, type EntityManager, PrimaryColumn, VersionColumn } from 'typeorm';
import {
  FencingToken,
  claimRow,
  fencedFindOne,
  fencedUpdate,
  optimisticUpdate,
} from '../../lib/backends/typeorm/index.js';
import { mariadbStore, postgresStore } from '../stores.js';
import { inSession, tablesOn } from './databases.js';

@Entity()
class Task {
  @PrimaryColumn('int')
  id!: number;

  @Column('int', { default: 0 })
  progress!: number;

  @VersionColumn()
  version!: number;

  @FencingToken()
  fencingToken?: bigint;
}

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

describe('where PostgreSQL does not wait for the disk by default', () => {
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

describe('where sessions of MariaDB begin with autocommit off', () => {
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
