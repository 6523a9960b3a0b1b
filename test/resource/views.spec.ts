import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type DataSource, In, PrimaryColumn, VersionColumn, ViewColumn, ViewEntity } from 'typeorm';
import {
  FencingToken,
  claimRow,
  fencedFindOne,
  fencedUpdate,
  optimisticUpdate,
} from '../../lib/backends/typeorm/index.js';
import { LockConfigError } from '../../lib/core/errors.js';
import { sqlServers } from '../support/stores.js';
import { databases, tablesOn } from './databases.js';
import { Task } from './task.js';

/** The specs create the view themselves: TypeORM would read its name, but not the prefix of the tables. */
const view = { name: 'open_task', synchronize: false };

abstract class OpenTask {
  @ViewColumn()
  state!: string;

  @ViewColumn()
  progress!: number;

  @VersionColumn()
  version!: number;

  @FencingToken()
  fencingToken?: bigint;
}

@ViewEntity(view)
class WithoutId extends OpenTask {
  @ViewColumn()
  id!: number;
}

@ViewEntity(view)
class WithId extends OpenTask {
  @PrimaryColumn('int')
  id!: number;
}

type View = new () => OpenTask & { id: number };

const claim = { from: { state: 'WAITING' }, to: { state: 'RUNNING' } };
const grow = (task: OpenTask) => void (task.progress += 1);

const helpers: [string, (database: DataSource, view: View) => Promise<unknown>][] = [
  ['claimRow', (database, view) => claimRow(database, view, claim)],
  ['optimisticUpdate', (database, view) => optimisticUpdate(database, view, { id: 1 }, grow)],
  ['fencedFindOne', (database, view) => fencedFindOne(database, view, { id: 1 }, 5n)],
  ['fencedUpdate', (database, view) => fencedUpdate(database, view, { id: 1 }, { progress: 9 }, 5n)],
];

describe.each(sqlServers)('a view on %s', (_, storeOf) => {
  let database: DataSource;
  let name: string;
  tablesOn(storeOf, [Task, WithoutId, WithId], (opened) => (database = opened));
  beforeAll(async () => {
    const { tableName } = database.getMetadata(Task);
    name = database.getMetadata(WithId).tableName;
    await database.query(`CREATE VIEW ${name} AS SELECT * FROM ${tableName}`);
    await database.manager.insert(Task, [{ id: 1 }, { id: 2 }]);
  });
  afterAll(() => database.query(`DROP VIEW ${name}`));

  it.each(helpers)('without an id is refused by %s, which could not tell its rows apart', async (_, use) => {
    const before = await database.manager.find(Task);
    await expect(use(database, WithoutId)).rejects.toThrow(LockConfigError);
    await expect(use(database, WithoutId)).rejects.toThrow('Expected the entity WithoutId to have an id');
    expect(await database.manager.find(Task)).toEqual(before);
  });

  it.each(helpers)('with an id is written by %s, one row at a time', async (_, use) => {
    await database.manager.update(Task, { id: In([1, 2]) }, { state: 'WAITING', progress: 0 });
    const versions = async () =>
      (await database.manager.find(Task, { order: { id: 'ASC' } })).map((t) => t.version);
    const before = await versions();
    await use(database, WithId);
    const changes = (await versions()).map((version, index) => version - before[index]!);
    expect(changes.toSorted()).toEqual([0, 1]);
  });
});

describe.each(databases.filter(([name]) => name === 'better-sqlite3' || name === 'libsql'))(
  'a view on %s',
  (_, storeOf) => {
    let database: DataSource;
    tablesOn(storeOf, [Task, WithId], (opened) => (database = opened));

    it.each(helpers)('is refused by %s, as an update of it reports no changed row', async (_name, use) => {
      await expect(use(database, WithId)).rejects.toThrow(
        'Expected an entity of a table, got the view WithId',
      );
    });
  },
);
