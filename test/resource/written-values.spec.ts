import { beforeAll, beforeEach, describe, expect, it } from 'vitest';
import {
  ChildEntity,
  Column,
  type DataSource,
  Entity,
  PrimaryColumn,
  TableInheritance,
  VersionColumn,
} from 'typeorm';
import { claimRow, fencedUpdate, optimisticUpdate } from '../../lib/backends/typeorm/index.js';
import { LockConfigError } from '../../lib/core/errors.js';
import { databases, tablesOn } from './databases.js';
import { Task } from './task.js';

const FENCE = { key: 'spec', fencingToken: 7n };

describe.each(databases)('values that are written on %s', (_, storeOf) => {
  let database: DataSource;
  tablesOn(storeOf, [Task], (opened) => (database = opened));
  beforeAll(() => {
    database.subscribers.push({
      listenTo: () => Task,
      beforeUpdate({ entity }) {
        (entity as Task).progress += 100;
      },
    });
  });
  beforeEach(async () => {
    await database.manager.clear(Task);
    await database.manager.insert(Task, { id: 1 });
  });

  it.each<[string, (task: Task) => Promise<unknown>]>([
    [
      'fencedUpdate',
      (task) => fencedUpdate(database, Task, { id: 1 }, Object.assign(task, { progress: 1 }), FENCE),
    ],
    [
      'claimRow',
      (task) =>
        claimRow(database, Task, {
          from: { state: 'WAITING' },
          to: Object.assign(task, { state: 'RUNNING' }),
        }),
    ],
  ])('have no version, which would not grow then: %s', async (__, write) => {
    const written = write(await database.manager.findOneByOrFail(Task, { id: 1 }));
    await expect(written).rejects.toThrow(LockConfigError);
    await expect(written).rejects.toThrow("Expected values without 'version'");
  });

  it('are a copy, which a subscriber may change', async () => {
    const to = { state: 'RUNNING', progress: 1 };
    expect(await claimRow(database, Task, { from: { state: 'WAITING' }, to })).toMatchObject({
      progress: 101,
    });
    const values = { progress: 2 };
    expect(await fencedUpdate(database, Task, { id: 1 }, values, FENCE)).toBe(true);
    expect([to, values]).toEqual([{ state: 'RUNNING', progress: 1 }, { progress: 2 }]);
  });
});

@Entity()
@TableInheritance({ column: { type: 'varchar', length: 20 } })
class Animal {
  @PrimaryColumn('int')
  id!: number;

  @VersionColumn()
  version!: number;
}

@ChildEntity()
class Cat extends Animal {
  @Column('int', { default: 9 })
  lives!: number;
}

@ChildEntity()
class Dog extends Animal {
  @Column({
    type: 'varchar',
    length: 20,
    nullable: true,
    transformer: { from: String, to: (name: string) => name.trim() },
  })
  name!: string;
}

describe.each(databases)('rows of several classes on %s', (_, storeOf) => {
  let database: DataSource;
  tablesOn(storeOf, [Animal, Cat, Dog], (opened) => (database = opened));

  it('are changed by the columns of their own class', async () => {
    await database.manager.insert(Cat, { id: 1 });
    await optimisticUpdate(database, Animal, { id: 1 }, (animal) => void ((animal as Cat).lives -= 1));
    expect(await database.manager.findOneByOrFail(Cat, { id: 1 })).toMatchObject({ lives: 8, version: 2 });
  });
});
