import { beforeEach, describe, expect, it } from 'vitest';
import { Column, type DataSource, Entity, type EntitySubscriberInterface, PrimaryColumn } from 'typeorm';
import { FencingToken, fencedUpdate } from '../../lib/backends/typeorm/index.js';
import { LockLostError } from '../../lib/index.js';
import { mariadbStore } from '../support/stores.js';
import { databases, tablesOn } from './databases.js';

@Entity()
class Bin {
  @PrimaryColumn('int')
  id!: number;

  @Column('int', { default: 0 })
  weight!: number;

  @FencingToken()
  fencingToken?: bigint;
}

describe.each(databases)('the listeners of a fenced write that writes nothing, on %s', (_, storeOf) => {
  let database: DataSource;
  const subscriber: EntitySubscriberInterface = {};
  tablesOn(storeOf, [Bin], (opened) => {
    database = opened;
    database.subscribers.push(subscriber);
  });
  beforeEach(async () => {
    delete subscriber.afterUpdate;
    await database.manager.clear(Bin);
    await database.manager.insert(Bin, { id: 1 });
    await fencedUpdate(database, Bin, { id: 1 }, { weight: 1 }, 9n);
    subscriber.afterUpdate = () => {
      throw new Error('subscriber');
    };
  });

  it.each([{ id: 1 }, { weight: 1 }])('are not called after a refused one of %j', async (where) => {
    await expect(fencedUpdate(database, Bin, where, { weight: 2 }, 5n)).rejects.toThrow(LockLostError);
  });

  it.each([{ id: 2 }, { weight: 7 }])('are not called if no row matches %j', async (where) => {
    expect(await fencedUpdate(database, Bin, where, { weight: 2 }, 9n)).toBe(false);
  });
});

describe('the listeners of a fenced write on MariaDB without FOUND_ROWS', () => {
  let database: DataSource;
  const subscriber: EntitySubscriberInterface = {};
  tablesOn(
    () => mariadbStore(),
    [Bin],
    (opened) => {
      database = opened;
      database.subscribers.push(subscriber);
    },
    { extra: { flags: ['-FOUND_ROWS'] } },
  );

  it('are called though the row has the values already', async () => {
    await database.manager.insert(Bin, { id: 1 });
    await fencedUpdate(database, Bin, { id: 1 }, { weight: 1 }, 9n);
    let calls = 0;
    subscriber.afterUpdate = () => void (calls += 1);
    expect(await fencedUpdate(database, Bin, { id: 1 }, { weight: 1 }, 9n)).toBe(true);
    expect(calls).toBe(1);
  });
});
